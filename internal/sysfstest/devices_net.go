package sysfstest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
)

// Net is a network interface.
type Net struct {
	Name string
	// Type is a number of ARPHRD_* (include/uapi/linux/if_arp.h); 0 is 1, that
	// of Ethernet.
	Type           int
	DevPort, DevID int
	// Bridge makes it one, and Bond a bond.
	Bridge, Bond bool
	// Master is the interface that it is a part of, Lower the one that it is
	// made of; both must be there.
	Master, Lower string
}

// AddNet makes a network interface of the device with the directory dir, a
// virtual one if that is empty, and returns its own directory.
func (h *Host) AddNet(dir string, n Net) string {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if dir == "" {
		dir = "devices/virtual"
	}
	if n.Type == 0 {
		n.Type = 1
	}
	own := path.Join(dir, "net", n.Name)
	h.attrs(own, map[string]string{
		"type": strconv.Itoa(n.Type), "dev_port": strconv.Itoa(n.DevPort), "dev_id": fmt.Sprintf("0x%x", n.DevID),
		"address": "02:00:00:00:00:01",
	})
	for name, is := range map[string]bool{"bridge": n.Bridge, "bonding": n.Bond} {
		if is {
			h.check(os.MkdirAll(filepath.Join(h.Sysfs(), own, name), 0o755))
		}
	}
	link := "class/net/" + n.Name
	h.link(own+"/subsystem", "class/net")
	h.link(link, own)
	h.made[own] = append(h.made[own], "sys/"+link)
	if n.Master != "" {
		master, err := h.findIn("class/net", n.Master)
		h.check(err)
		h.link(own+"/master", master)
		h.link(own+"/upper_"+n.Master, master)
		h.linkFrom(own, master+"/lower_"+n.Name, own)
	}
	if n.Lower != "" {
		lower, err := h.findIn("class/net", n.Lower)
		h.check(err)
		h.link(own+"/lower_"+n.Lower, lower)
		h.linkFrom(own, lower+"/upper_"+n.Name, own)
	}
	return own
}

// linkFrom makes a link that goes with a device, wherever it is.
func (h *Host) linkFrom(dir, name, target string) {
	h.t.Helper()
	h.link(name, target)
	h.made[dir] = append(h.made[dir], "sys/"+name)
}
