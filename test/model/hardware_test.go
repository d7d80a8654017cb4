package model

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// thing is a piece of hardware that scripts plug, pull and swap.
type thing struct {
	resource string // configured for it
	usb      string // vendor:product of a USB stick
	serial   string
	nodes    int
}

// things by name. A and B have unique serials, C and D are equal without a serial, T and U
// share one, M and N have two nodes each. G and H are PCI cards, W and X nodes without
// hardware.
var things = map[string]thing{
	"A": {resource: "serial", usb: "10c4:ea60", serial: "FT4A7K2Q", nodes: 1},
	"B": {resource: "serial", usb: "10c4:ea60", serial: "FT9B31XW", nodes: 1},
	"C": {resource: "serial", usb: "1a86:7523", nodes: 1},
	"D": {resource: "serial", usb: "1a86:7523", nodes: 1},
	"T": {resource: "serial", usb: "0403:6001", serial: twin, nodes: 1},
	"U": {resource: "serial", usb: "0403:6001", serial: twin, nodes: 1},
	"M": {resource: "dual", usb: "0403:6010", serial: "FT5M80ZC", nodes: 2},
	"N": {resource: "dual", usb: "0403:6010", nodes: 2},
	"G": {resource: "card", nodes: 2},
	"H": {resource: "card", nodes: 2},
	"W": {resource: "widget", nodes: 1},
	"X": {resource: "widget", nodes: 1},
}

// twin is the serial of T and U.
const twin = "TW4477EF"

var thingNames = slices.Sorted(maps.Keys(things))

// xhci is the controller of all USB ports.
const xhci = "0000:00:14.0"

// plugged is the location of a thing.
type plugged struct {
	place string   // port of USB, address on PCI; empty for a node without hardware
	nodes []string // below /dev
	dir   string   // in sysfs
}

// hardware is the truth: the locations and nodes of things.
type hardware struct {
	host  *sysfstest.Host
	at    map[string]plugged
	owner map[string]string // thing by node
	moves map[string]int    // count of plugs and pulls of each thing
}

func newHardware(t testing.TB, dir string) *hardware {
	t.Helper()
	host := sysfstest.NewHost(t, sysfstest.HostOptions{Dir: dir, RealNodes: sysfstest.CheckMknod(dir) == nil})
	host.AddRootHub(host.AddPCI(sysfstest.PCI{Address: xhci, Vendor: "8086", Device: "a36d", Class: "0c0330"}), 1, "480")
	return &hardware{host: host, at: map[string]plugged{}, owner: map[string]string{}, moves: map[string]int{}}
}

// plug plugs a thing into one of eight places, after a pull of the thing and of the thing in
// that place. Its nodes get the first free numbers from number on.
func (h *hardware) plug(name string, place, number int) {
	h.pull(name)
	th := things[name]
	p := plugged{}
	switch th.resource {
	case "card":
		p.place = fmt.Sprintf("0000:0%d:00.0", place)
	case "serial", "dual":
		p.place = fmt.Sprint(place)
	}
	for other, o := range h.at {
		if p.place != "" && o.place == p.place {
			h.pull(other)
		}
	}
	format := map[string]string{"serial": "ttyUSB%d", "dual": "ttyUSB%d", "card": "apex_%d", "widget": "widget%d"}[th.resource]
	for ; len(p.nodes) < th.nodes; number++ {
		node := fmt.Sprintf(format, number)
		if h.owner[node] == "" {
			p.nodes = append(p.nodes, node)
			h.owner[node] = name
		}
	}
	switch th.resource {
	case "card":
		p.dir = h.host.AddPCI(sysfstest.PCI{Address: p.place, Vendor: "1ac1", Device: "089a", Class: "038000", Nodes: cardNodes(p.nodes)})
	case "widget":
		p.dir = h.host.AddNode("", sysfstest.Node{Name: p.nodes[0], Subsystem: "misc", Major: 240, Minor: minor(p.nodes[0])})
	default:
		vendor, product, _ := strings.Cut(th.usb, ":")
		ports := sysfstest.Interface{Class: "ff", Driver: "usbserial"}
		for i, node := range p.nodes {
			ports.Nodes = append(ports.Nodes, sysfstest.SerialPort(node, i))
		}
		p.dir = h.host.AddUSB(sysfstest.USB{
			Port: "1-" + p.place, Vendor: vendor, Product: product, Serial: th.serial, Interfaces: []sysfstest.Interface{ports},
		})
	}
	h.at[name] = p
	h.moves[name]++
	h.announce()
}

// announce replaces the uevents of a change, which a tree of files does not send: without
// them, the program sees only changes of names in /dev, the last of which precedes the last
// change of sysfs.
func (h *hardware) announce() {
	name := filepath.Join(h.host.Dev(), ".announce")
	_ = os.Mkdir(name, 0o700)
	_ = os.Remove(name)
}

func cardNodes(names []string) []sysfstest.Node {
	var nodes []sysfstest.Node
	for _, name := range names {
		nodes = append(nodes, sysfstest.Node{Name: name, Subsystem: "apex", Major: 120, Minor: minor(name)})
	}
	return nodes
}

// minor is the number at the end of a node's name.
func minor(node string) (n uint32) {
	fmt.Sscan(strings.TrimLeft(filepath.Base(node), "abcdefghijklmnopqrstuvwxyzUSB_"), &n)
	return n
}

func (h *hardware) pull(name string) {
	p, ok := h.at[name]
	if !ok {
		return
	}
	h.host.Remove(p.dir)
	for _, node := range p.nodes {
		delete(h.owner, node)
	}
	delete(h.at, name)
	h.moves[name]++
	h.announce()
}

// swap exchanges the places of two things, and with them their nodes.
func (h *hardware) swap(one, other string) {
	p, q := h.at[one], h.at[other]
	if p.dir == "" || q.dir == "" || things[one].resource != things[other].resource {
		return
	}
	h.pull(one)
	h.pull(other)
	h.plug(one, placeNumber(q.place), int(minor(q.nodes[0])))
	h.plug(other, placeNumber(p.place), int(minor(p.nodes[0])))
}

func placeNumber(place string) (n int) {
	fmt.Sscan(strings.TrimPrefix(place, "0000:0"), &n)
	return n
}
