package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// A failed scan is repeated without an event.
func TestFailedScanIsRepeated(t *testing.T) {
	t.Parallel()
	n := newNode(t, parts("r"))
	n.addNodes("r-a")
	a, _ := n.serve()
	n.untilListed("example.com/r", []string{"r-a"}, nil)
	away := n.host.Sysfs() + ".away"
	must(t, os.Rename(n.host.Sysfs(), away))
	must(t, os.WriteFile(filepath.Join(n.host.Dev(), "event"), nil, 0o600))
	scanFails := func() bool {
		for _, p := range a.Status(t.Context()).Problems {
			if p.Subject == "scan" {
				return true
			}
		}
		return false
	}
	n.eventually("a scan that fails", scanFails)
	if list, _ := n.kubelet.Latest("example.com/r"); strings.Join(list.Healthy(), " ") != "r-a" {
		t.Errorf("healthy: %q, want the last snapshot", list.Healthy())
	}
	must(t, os.Rename(away, n.host.Sysfs()))
	n.eventually("a scan", func() bool { return !scanFails() })
}

// Allocate of an interface waits for no scan.
func TestAllocateOfAnInterfaceDuringAScan(t *testing.T) {
	t.Parallel()
	const port = "example.com/port"
	n := newNode(t, "domain = \"example.com\"\n[[resource]]\nname = \"port\"\nmatch.net.name = \"eth*\"\ncontainer.cdi = true\n")
	n.options.Allow.Net = true
	card := n.host.AddPCI(sysfstest.PCI{Address: "0000:03:00.0", Vendor: "8086", Device: "1533", Class: "020000", Driver: "igb"})
	n.host.AddNet(card, sysfstest.Net{Name: "eth1"})
	slow := n.host.AddPCI(sysfstest.PCI{Address: "0000:04:00.0", Vendor: "8086", Device: "1533", Class: "020000", Driver: "igb"})
	wlan := n.host.AddNet(slow, sysfstest.Net{Name: "wlan0"})
	n.serve()
	n.until("list of "+port, func() bool {
		list, _ := n.kubelet.Latest(port)
		return len(list.Healthy()) == 1
	})
	list, _ := n.kubelet.Latest(port)
	hung, end := hang(t, filepath.Join(n.host.Sysfs(), wlan))
	defer end()
	n.event()
	<-hung
	if _, err := n.kubelet.Allocate(t.Context(), port, list.Healthy()[0]); err != nil {
		t.Error(err)
	}
}

// No event announces that a function can be read after a reset: it is read again now and
// then.
func TestUnreadFunctionIsReadAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t, "domain = \"example.com\"\n[[resource]]\nname = \"gpu\"\nmatch.pci.id = \"8086:*\"\n")
	card := n.host.AddPCI(sysfstest.PCI{Address: "0000:00:02.0", Vendor: "8086", Device: "9a49", Class: "030000", Driver: "i915",
		Nodes: []sysfstest.Node{{Name: "dri/renderD128", Subsystem: "drm"}}})
	modalias := filepath.Join(n.host.Sysfs(), card, "modalias")
	if err := errors.Join(os.Rename(modalias, modalias+".aside"), unix.Mknod(modalias, unix.S_IFSOCK|0o600, 0)); err != nil { // to open it gives ENXIO
		t.Fatal(err)
	}
	var c clock
	a, _ := n.serveBy(&c)
	n.untilLogged("although it is on its bus")
	must(t, os.Rename(modalias+".aside", modalias))
	n.eventually("the device", func() bool {
		c.forward(10 * time.Second)
		a.Reload()
		list, _ := n.kubelet.Latest("example.com/gpu")
		return len(list.Healthy()) == 1
	})
}

// A program makes its directory first, and its socket later. The event of the socket is in the new
// directory.
func TestSocketInANewDirectory(t *testing.T) {
	t.Parallel()
	// The directory for temporary files may be /dev/shm, where a glob selects device nodes.
	dir, err := os.MkdirTemp("/var/tmp", "generic-dp-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	top := filepath.Join(dir, "vendor")
	text := "domain = \"example.com\"\n[[resource]]\nname = \"api\"\nmatch = { glob = \"" + top + "/*/api.sock\" }\n"
	n := newNode(t, text)
	n.options.Allow = config.Allow{Mounts: []string{top}}
	// ready makes a directory with its socket at once.
	ready := func(name string) {
		t.Helper()
		made := filepath.Join(dir, name)
		err := errors.Join(
			os.Mkdir(made, 0o755),
			os.WriteFile(filepath.Join(made, "api.sock"), nil, 0o644),
			os.Rename(made, filepath.Join(top, name)),
		)
		must(t, err)
	}
	listed := func(count int) func() bool {
		return func() bool { return n.kubelet.Count("example.com/api").Allocatable == count }
	}
	must(t, os.Mkdir(top, 0o755))
	var c clock // it stands still, so that nothing but an event causes a scan
	n.serveBy(&c)
	must(t, os.Mkdir(filepath.Join(top, "late"), 0o755))
	ready("first")
	n.until("the first socket", listed(1))
	ready("second")
	n.until("the second socket", listed(2)) // a scan has seen the directory late by now
	must(t, os.WriteFile(filepath.Join(top, "late", "api.sock"), nil, 0o644))
	n.until("the socket that is made later", listed(3))
}
