package inventory_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// changing is a host whose devices come and go at random, by a seed.
type changing struct {
	*sysfstest.Host
	t      *testing.T
	rand   *rand.Rand
	turn   int
	made   int               // number of names given out
	pci    map[string]string // directories by address
	usb    map[string]string // by port
	others []string          // directories of platform and virtual devices
	files  map[string]bool   // links and copies of nodes below /dev
}

func newChanging(t *testing.T, seed uint64, o sysfstest.HostOptions) *changing {
	c := &changing{
		Host: sysfstest.NewHost(t, o), t: t, rand: rand.New(rand.NewPCG(seed, 0)),
		pci: make(map[string]string), usb: make(map[string]string), files: make(map[string]bool),
	}
	for bus := 1; bus <= 2; bus++ {
		c.AddRootHub(c.AddPCI(sysfstest.PCI{Address: fmt.Sprintf("0000:00:14.%d", bus), Vendor: "8086", Device: "a36d", Class: "0c0330"}), bus, "480")
	}
	return c
}

// one returns a random element of a list.
func one[T any](c *changing, list ...T) T { return list[c.rand.IntN(len(list))] }

// name returns an unused name.
func (c *changing) name(prefix string) string {
	c.made++
	return fmt.Sprint(prefix, c.made)
}

func (c *changing) numa() *int {
	n := one(c, -1, 0, 1)
	return one(c, &n, nil)
}

func (c *changing) plugPCI() {
	address := fmt.Sprintf("0000:%02x:00.%d", 0x10+c.rand.IntN(3), c.rand.IntN(2))
	if c.pci[address] != "" {
		// Virtual functions are removed first.
		for _, a := range []string{address[:len(address)-1] + "1", address} {
			if c.pci[a] != "" {
				c.Remove(c.pci[a])
				delete(c.pci, a)
			}
		}
		if c.rand.IntN(2) == 0 {
			return
		}
	}
	p := sysfstest.PCI{
		Address: address, Vendor: one(c, "1002", "10de"), Device: one(c, "740f", "1c82"), Class: one(c, "030000", "020000"),
		Driver: one(c, "", "amdgpu", "vfio-pci"), IOMMUGroup: one(c, "", "7", "8"), NUMA: c.numa(), TotalVFs: one(c, 0, 4),
	}
	if pf := address[:len(address)-1] + "0"; pf != address && c.pci[pf] != "" && c.rand.IntN(2) == 0 {
		p.PF, p.VF, p.TotalVFs = pf, c.rand.IntN(3), 0
	}
	if c.rand.IntN(2) == 0 {
		p.Nodes = []sysfstest.Node{{Name: c.name("dri/card"), Subsystem: "drm"}}
	}
	c.pci[address] = c.AddPCI(p)
	for i := range c.rand.IntN(3) {
		c.AddSubFunction(c.pci[address], sysfstest.SubFunction{
			Name: c.name("mlx5_core.sf."), Number: i, Nodes: []sysfstest.Node{{Name: c.name("infiniband/uverbs"), Subsystem: "infiniband_verbs"}},
		})
	}
}

// plugUSB unplugs the device in a port, or plugs one in, or both.
func (c *changing) plugUSB() {
	port := fmt.Sprintf("%d-%d", 1+c.rand.IntN(2), 1+c.rand.IntN(3))
	if c.usb[port] != "" {
		c.RemoveUSB(port)
		delete(c.usb, port)
		if c.rand.IntN(2) == 0 {
			return
		}
	}
	u := sysfstest.USB{
		Port: port, Vendor: "0403", Product: one(c, "6001", "6011"), Serial: c.name("S"), ProductName: one(c, "", "FT232R"),
	}
	for i := range c.rand.IntN(3) {
		// Free names and numbers are reused at once.
		free := i
		for ; ; free++ {
			if _, err := os.Lstat(filepath.Join(c.Dev(), fmt.Sprint("ttyUSB", free))); err != nil {
				break
			}
		}
		node := sysfstest.SerialPort(fmt.Sprint("ttyUSB", free), c.rand.IntN(4))
		if slices.ContainsFunc(u.Interfaces, func(of sysfstest.Interface) bool { return of.Nodes[0].Name == node.Name }) {
			break
		}
		if c.rand.IntN(3) == 0 {
			node = sysfstest.Node{Name: "hidraw" + port, Subsystem: "hidraw"}
		}
		u.Interfaces = append(u.Interfaces, sysfstest.Interface{Number: i, Class: one(c, "ff", "03"), Driver: one(c, "", "ftdi_sio"), Nodes: []sysfstest.Node{node}})
		if node.Subsystem == "hidraw" {
			break
		}
	}
	c.usb[port] = c.AddUSB(u)
}

func (c *changing) bind() {
	if len(c.pci) > 0 && c.rand.IntN(2) == 0 {
		dirs := sortedValues(c.pci)
		c.Bind("pci", one(c, dirs...), one(c, "", "amdgpu", "vfio-pci"))
		return
	}
	for _, dir := range sortedValues(c.usb) {
		interfaces, err := filepath.Glob(filepath.Join(c.Sysfs(), dir, "*:1.0"))
		if err != nil || len(interfaces) == 0 {
			continue
		}
		c.Bind("usb", dir+"/"+filepath.Base(interfaces[0]), one(c, "", "ftdi_sio", "cdc_acm"))
	}
}

func (c *changing) other() {
	if len(c.others) > 2 {
		i := c.rand.IntN(len(c.others))
		c.Remove(c.others[i])
		c.others = slices.Delete(c.others, i, i+1)
		return
	}
	if c.rand.IntN(2) == 0 {
		c.others = append(c.others, c.AddPlatform(sysfstest.Platform{
			Path: c.name("soc/serial."), Bus: one(c, "", "amba", "of"), NUMA: c.numa(),
			Nodes: []sysfstest.Node{{Name: c.name("ttyAMA"), Subsystem: "tty"}},
		}))
		return
	}
	c.others = append(c.others, c.AddNode("", sysfstest.Node{
		Name: c.name(one(c, "virtual", "block/virtual", "a/b/virtual")), Subsystem: one(c, "misc", "block"), Block: c.rand.IntN(2) == 0,
	}))
}

// file makes or removes a link to a node, or a copy of a node.
func (c *changing) file() {
	file := one(c, "link", "serial/by-id/x", "a/link", "copy")
	name := filepath.Join(c.Dev(), file)
	if c.files[name] {
		if err := os.Remove(name); err != nil {
			c.t.Error(err)
		}
		delete(c.files, name)
		return
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		c.t.Error(err)
	}
	target := "/dev/" + one(c, "ttyUSB0", "dri", "link", "hidraw1-1", "nothing")
	err := os.Symlink(target, name)
	if filepath.Base(name) == "copy" {
		// The content appears at once, like that of a node.
		err = os.Remove(name)
		if err == nil {
			err = os.WriteFile(name+".new", []byte("char 188:0\n"), 0o644)
		}
		if err == nil {
			err = os.Rename(name+".new", name)
		}
	}
	if err != nil {
		c.t.Error(err)
	}
	c.files[name] = true
}

func sortedValues(m map[string]string) []string {
	var list []string
	for _, v := range m {
		list = append(list, v)
	}
	slices.Sort(list)
	return list
}

// updated returns the result of updates once no device is awaited.
func updated(t *testing.T, s *inventory.Scanner, b inventory.Batch) *device.Snapshot {
	t.Helper()
	for {
		snap, err := s.Update(t.Context(), b)
		must(t, err)
		if len(snap.UnreadHardware) == 0 {
			return snap
		}
		<-s.Answered()
		b = inventory.Batch{}
	}
}

// same fails the test if an update differs from the first scan of another scanner.
func (c *changing) same(s *inventory.Scanner, b inventory.Batch) {
	c.t.Helper()
	got := updated(c.t, s, b)
	if diff := cmp.Diff(scan(c.t, c.Tree), got); diff != "" {
		c.t.Fatalf("step %d, uevents %q: an update differs from a first scan:\n%s", c.turn, b.Paths, diff)
	}
}

// For random changes an update equals the first scan of another scanner.
func TestUpdateEqualsScan(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			c := newChanging(t, seed, sysfstest.HostOptions{})
			s := newScanner(c)
			for c.turn = range 60 {
				for range c.rand.IntN(4) {
					one(c, c.plugPCI, c.plugUSB, c.plugUSB, c.bind, c.other, c.file)()
				}
				c.same(s, inventory.Batch{Paths: c.Uevents(), All: c.rand.IntN(20) == 0})
			}
		})
	}
}

// After events of interfaces alone, everything else is as in the last scan. An interface of a device that
// has appeared since is left out until the event of the device.
func TestUpdateOfInterfaces(t *testing.T) {
	t.Parallel()
	c := newChanging(t, 7, sysfstest.HostOptions{})
	card := c.AddPCI(sysfstest.PCI{Address: "0000:03:00.0", Vendor: "8086", Device: "1533", Class: "020000", Driver: "igb"})
	soc := c.AddPlatform(sysfstest.Platform{Path: "soc/fe300000.ethernet"})
	s := newScanner(c)
	c.same(s, inventory.Batch{Paths: c.Uevents()})
	var here []string
	for c.turn = range 60 {
		i := c.rand.IntN(6)
		if i < len(here) {
			c.Remove(here[i])
			here = slices.Delete(here, i, i+1)
		} else {
			here = append(here, c.AddNet(one(c, card, soc, ""), sysfstest.Net{Name: c.name("eth"), DevPort: c.turn}))
		}
		c.same(s, inventory.Batch{Paths: c.Uevents()})
	}
	stick := c.AddUSB(sysfstest.USB{
		Port: "1-2", Vendor: "0bda", Product: "8153", Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "r8152"}},
	})
	c.AddNet(stick+"/1-2:1.0", sysfstest.Net{Name: "usb0"})
	snap := updated(t, s, inventory.Batch{Paths: []string{"devices/virtual/net/veth1"}})
	noProblems(t, snap)
	isStick := func(n *device.Node) bool { return n.Path == "usb0" }
	if findHardware(snap, "1-2") != nil || slices.ContainsFunc(snap.Nets, isStick) {
		t.Error("an event of an interface shows a stick")
	}
	c.same(s, inventory.Batch{Paths: c.Uevents()})
}

// A failed scan leaves nothing behind.
func TestUpdateAfterAFailedScan(t *testing.T) {
	t.Parallel()
	c := newChanging(t, 1, sysfstest.HostOptions{})
	s := newScanner(c)
	c.same(s, inventory.Batch{})
	away := c.Sysfs() + ".away"
	must(t, os.Rename(c.Sysfs(), away))
	if snap, err := s.Update(t.Context(), inventory.Batch{}); snap != nil || err == nil {
		t.Errorf("without sysfs: %v, %v; want an error", snap, err)
	}
	must(t, os.Rename(away, c.Sysfs()))
	c.plugPCI()
	c.same(s, inventory.Batch{})
}

// An unplugged device loses its interfaces first: a node read just before has gone with
// its interface, and does not belong to the device alone.
func TestNodeOfARemovedInterface(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddBus()
	h.AddUSB(sysfstest.USB{
		Port: "1-2", Vendor: "0403", Product: "6001",
		Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "ftdi_sio", Nodes: []sysfstest.Node{sysfstest.SerialPort("ttyUSB0", 0)}}},
	})
	s := newScanner(h)
	if n := findNode(t, updated(t, s, inventory.Batch{}), "/dev/ttyUSB0"); n.Interface != 0 {
		t.Errorf("%+v; want a node of interface 0", n)
	}
	must(t, os.Remove(filepath.Join(h.Sysfs(), "bus/usb/devices/1-2:1.0")))
	for what, snap := range map[string]*device.Snapshot{"an update": updated(t, s, inventory.Batch{}), "a scan": scan(t, h.Tree)} {
		noProblems(t, snap)
		if slices.Contains(nodePaths(snap), "/dev/ttyUSB0") {
			t.Errorf("%s shows the node", what)
		}
		if stick := findHardware(snap, "1-2"); stick == nil || len(stick.Nodes) != 1 {
			t.Errorf("%s: the device is %+v; want it with its own node", what, stick)
		}
	}
}

// Events are kept with their latest time, for as long as a device may be settling.
func TestEvents(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	s := newScanner(h)
	at := time.Now().Add(-time.Second)
	later := at.Add(time.Second / 2)
	updated(t, s, inventory.Batch{Paths: []string{"devices/a/usb1/1-2", "devices/b"}, At: at})
	updated(t, s, inventory.Batch{Paths: []string{"devices/b"}, At: later})
	updated(t, s, inventory.Batch{Paths: []string{"devices/c"}, At: at.Add(-time.Minute)})
	want := map[string]time.Time{"devices/a/usb1/1-2": at, "devices/b": later}
	updated(t, s, inventory.Batch{})
	events := s.Events()
	for path, at := range want {
		if !events[path].Equal(at) {
			t.Errorf("%s: %v; want %v", path, events[path], at)
		}
	}
	if len(events) != len(want) {
		t.Errorf("events %v; want %v", events, want)
	}
}
