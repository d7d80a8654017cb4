package catalog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/pattern"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
	"github.com/generic-dp/generic-dp/internal/tools/catalog"
	"github.com/generic-dp/generic-dp/matchers"
)

// newHost returns a host with a USB controller.
func newHost(t *testing.T) *sysfstest.Host {
	t.Helper()
	h := sysfstest.New(t)
	h.AddBus()
	return h
}

func catalogOf(t *testing.T, h *sysfstest.Host) *catalog.Catalog {
	t.Helper()
	snap, scanner := sysfstest.Scan(t, inventory.Options{Sysfs: h.Sysfs(), Dev: h.Dev()})
	return catalog.New(snap, scanner.Attributes(), nil)
}

// list lists a host without resources.
func list(t *testing.T, h *sysfstest.Host) []catalog.Device {
	t.Helper()
	return catalogOf(t, h).List(matchers.Result{}, matchers.Result{})
}

func find(t *testing.T, all []catalog.Device, name string) catalog.Device {
	t.Helper()
	i := slices.IndexFunc(all, func(d catalog.Device) bool { return d.Name == name })
	if i < 0 {
		t.Fatalf("no %q among %d devices", name, len(all))
	}
	return all[i]
}

// texts are the resources of a starter configuration by name.
func texts(resources []catalog.Resource) map[string]string {
	found := map[string]string{}
	for _, r := range resources {
		found[r.Name] = r.Text()
	}
	return found
}

func TestKinds(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	pci := func(address, vendor, class, driver string, nodes ...sysfstest.Node) {
		h.AddPCI(sysfstest.PCI{Address: address, Vendor: vendor, Device: "1234", Class: class, Driver: driver, Nodes: nodes})
	}
	usb := func(port, class, driver string) string {
		return h.AddUSB(sysfstest.USB{Port: port, Vendor: "1234", Product: "5678", Interfaces: []sysfstest.Interface{{Class: class, Driver: driver}}})
	}
	pci("0000:00:16.0", "8086", "078000", "mei_me")
	pci("0000:00:16.3", "8086", "070002", "serial")
	pci("0000:01:00.0", "10de", "030000", "vfio-pci")
	pci("0000:02:00.0", "10de", "030200", "nvidia")
	pci("0000:03:00.0", "1a03", "030000", "")
	pci("0000:04:00.0", "1a03", "030000", "ast", sysfstest.Node{Name: "dri/card0", Subsystem: "drm"})
	h.AddNet(usb("1-1", "ff", "r8152"), sysfstest.Net{Name: "eth1"})
	usb("1-2", "ff", "btusb")
	usb("1-3", "ff", "")
	usb("1-4", "0e", "uvcvideo")
	h.AddPlatform(sysfstest.Platform{Path: "serial8250", Nodes: []sysfstest.Node{{Name: "ttyS0", Subsystem: "tty"}}})
	h.AddPlatform(sysfstest.Platform{Path: "fe801000.csi", Driver: "unicam", Nodes: []sysfstest.Node{{Name: "video0", Subsystem: "video4linux"}}})
	h.AddPlatform(sysfstest.Platform{Path: "bcm2835-codec", Nodes: []sysfstest.Node{{Name: "video10", Subsystem: "video4linux"}}})
	h.AddPlatform(sysfstest.Platform{Path: "ff9a0000.video", Driver: "hantro-vpu", Nodes: []sysfstest.Node{{Name: "video11", Subsystem: "video4linux"}}})
	parent := h.AddPCI(sysfstest.PCI{Address: "0000:05:00.0", Vendor: "10de", Device: "1eb8", Class: "030200", Driver: "nvidia"})
	h.AddMDev(parent, sysfstest.MDev{UUID: "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001", Type: "nvidia-222", IOMMUGroup: "112"})
	h.AddNode("", sysfstest.Node{Name: "ttyS9", Subsystem: "tty", Major: 4, Minor: 73})
	all := list(t, h)
	for name, want := range map[string]string{
		"0000:00:16.0":                         "communication",
		"0000:00:16.3":                         "serial port",
		"0000:01:00.0":                         "GPU",
		"0000:02:00.0":                         "GPU",
		"0000:03:00.0":                         "GPU",
		"0000:04:00.0":                         "display",
		"1-1":                                  "network",
		"1-2":                                  "Bluetooth",
		"1-3":                                  "vendor-specific",
		"1-4":                                  "camera",
		"serial8250":                           "serial port",
		"/dev/ttyS9":                           "serial port",
		"fe801000.csi":                         "camera",
		"bcm2835-codec":                        "video codec",
		"ff9a0000.video":                       "video codec",
		"83b8f4f2-509f-382f-3c1e-e6bfe0fa1001": "mediated device",
	} {
		if got := find(t, all, name).Kind; got != want {
			t.Errorf("%s is a %q: want %q", name, got, want)
		}
	}
	if mdev := find(t, all, "83b8f4f2-509f-382f-3c1e-e6bfe0fa1001"); mdev.ID != "nvidia-222" {
		t.Errorf("the type of the mediated device is %q", mdev.ID)
	}
}

// The ports of a modem are one device, with the node for its data.
func TestStarterOfModem(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.AddUSB(sysfstest.USB{Port: "1-1", Vendor: "2c7c", Product: "0125", Interfaces: []sysfstest.Interface{
		{Number: 0, Class: "ff", Driver: "option", Nodes: []sysfstest.Node{sysfstest.SerialPort("ttyUSB0", 0)}},
		{Number: 2, Class: "ff", Driver: "option", Nodes: []sysfstest.Node{sysfstest.SerialPort("ttyUSB1", 0)}},
		{Number: 4, Class: "ff", Driver: "qmi_wwan", Nodes: []sysfstest.Node{{Name: "cdc-wdm0", Subsystem: "usbmisc"}}},
	}})
	h.AddUSB(sysfstest.USB{Port: "1-2", Vendor: "12d1", Product: "1001", Interfaces: []sysfstest.Interface{
		{Number: 0, Class: "ff", Driver: "option", Nodes: []sysfstest.Node{sysfstest.SerialPort("ttyUSB2", 0)}},
		{Number: 1, Class: "ff", Driver: "option", Nodes: []sysfstest.Node{sysfstest.SerialPort("ttyUSB3", 0)}},
	}})
	found := texts(catalogOf(t, h).Starter())
	want := `# modem
#   1-1: /dev/cdc-wdm0 /dev/ttyUSB0 /dev/ttyUSB1
[[resource]]
name = "modem-2c7c-0125"
match.usb.id = "2c7c:0125"
match.glob = ["/dev/cdc-wdm*", "/dev/ttyUSB*"]
`
	if got := found["modem-2c7c-0125"]; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := found["modem-12d1-1001"]; !strings.Contains(got, "/dev/ttyUSB2 /dev/ttyUSB3") || strings.Contains(got, `each = "node"`) {
		t.Errorf("modem without a node for data:\n%s", got)
	}
	if len(found) != 2 {
		t.Errorf("%d resources: want 2: %v", len(found), found)
	}
}

// The raw node of a USB device is only for pods if no driver of the kernel uses the device.
func TestStarterLeavesOutUsedUSB(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for i, driver := range []string{"r8152", "btusb", "smsc95xx", "usbfs", ""} {
		h.AddUSB(sysfstest.USB{
			Port: fmt.Sprintf("1-%d", i+1), Vendor: "1234", Product: fmt.Sprintf("000%d", i+1),
			Interfaces: []sysfstest.Interface{{Class: "ff", Driver: driver}, {Number: 1, Class: "ff"}},
		})
	}
	found := texts(catalogOf(t, h).Starter())
	for name, want := range map[string]bool{"usb-1234-0001": false, "usb-1234-0002": false, "usb-1234-0003": false, "usb-1234-0004": true, "usb-1234-0005": true} {
		if _, got := found[name]; got != want {
			t.Errorf("%s is offered: %v, want %v\n%v", name, got, want, found)
		}
	}
}

// GPIO chips and chip selects of SPI are no substitutes for each other, and pods do not want
// the GPIO of a PC's chipset or the sound of a display.
func TestStarterOfBoard(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	gpio := func(path, driver string, number int) {
		name := fmt.Sprintf("gpiochip%d", number)
		h.AddPlatform(sysfstest.Platform{Path: path, Driver: driver, Nodes: []sysfstest.Node{{Name: name, Subsystem: "gpio", Dir: name}}})
	}
	gpio("soc/fe200000.gpio", "pinctrl-bcm2835", 0)
	gpio("soc/soc:firmware/soc:firmware:gpio", "raspberrypi-exp-gpio", 1)
	gpio("INT34C5:00", "tigerlake-pinctrl", 2)
	gpio("AMDI0030:00", "amd_gpio", 3)
	h.AddPlatform(sysfstest.Platform{Path: "soc/fe204000.spi", Nodes: []sysfstest.Node{
		{Name: "spidev0.0", Subsystem: "spidev"},
		{Name: "spidev0.1", Subsystem: "spidev"},
	}})
	h.AddPlatform(sysfstest.Platform{Path: "bcm2835-codec", Nodes: []sysfstest.Node{{Name: "video10", Subsystem: "video4linux"}}})
	h.AddPlatform(sysfstest.Platform{Path: "soc/fe801000.csi", Driver: "unicam", Nodes: []sysfstest.Node{
		{Name: "video0", Subsystem: "video4linux", Attrs: map[string]string{"video4linux/video0/name": "unicam-image"}},
		{Name: "video1", Subsystem: "video4linux", Attrs: map[string]string{"video4linux/video1/name": "unicam-embedded"}},
	}})
	h.AddPCI(sysfstest.PCI{Address: "0000:01:00.0", Vendor: "10de", Device: "1eb8", Class: "030000", Driver: "nvidia"})
	h.AddPCI(sysfstest.PCI{Address: "0000:01:00.1", Vendor: "10de", Device: "10f7", Class: "040300", Driver: "snd_hda_intel",
		Nodes: []sysfstest.Node{{Name: "snd/controlC0", Subsystem: "sound"}}})
	h.AddPCI(sysfstest.PCI{Address: "0000:00:1f.3", Vendor: "8086", Device: "a348", Class: "040300", Driver: "snd_hda_intel",
		Nodes: []sysfstest.Node{{Name: "snd/controlC1", Subsystem: "sound"}}})
	found := texts(catalogOf(t, h).Starter())
	for name, lines := range map[string][]string{
		"gpio-pinctrl-bcm2835":      {`match.glob = "/dev/gpiochip*"`, `match.driver = "pinctrl-bcm2835"`},
		"gpio-raspberrypi-exp-gpio": {`match.driver = "raspberrypi-exp-gpio"`},
		"spidev0-0":                 {`match.glob = "/dev/spidev0.0"`},
		"spidev0-1":                 {`match.glob = "/dev/spidev0.1"`},
		"camera":                    {`match.driver = "unicam"`, `each = "device"`},
		"sound":                     {`match.pci.id = "8086:a348"`},
	} {
		for _, line := range lines {
			if !strings.Contains(found[name], line+"\n") {
				t.Errorf("%s lacks %s:\n%s", name, line, found[name])
			}
		}
		delete(found, name)
	}
	if len(found) > 0 {
		t.Errorf("there are more: %v", found)
	}
}

// A short list has neither the nodes that no pod gets nor each part of a chipset, and an
// interface that the host uses is not free.
func TestFold(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for i := range 256 {
		h.AddNode("", sysfstest.Node{Name: fmt.Sprintf("cpu/%d/msr", i), Subsystem: "msr", Dir: fmt.Sprintf("msr/msr%d", i), Major: 202, Minor: uint32(i)})
		h.AddNode("", sysfstest.Node{Name: fmt.Sprintf("ttyS%d", i), Subsystem: "tty", Major: 4, Minor: uint32(64 + i)})
	}
	for i := range 20 {
		h.AddPCI(sysfstest.PCI{Address: fmt.Sprintf("0000:7e:%02x.0", i), Vendor: "8086", Device: "2035", Class: "088000"})
	}
	for i, name := range []string{"cali3d0f1a2b4c5", "cali99887766554", "veth0a1b2c3", "veth4d5e6f7"} {
		index := 10 + i
		h.AddNet("", sysfstest.Net{Name: name, Index: index, Link: 2, Up: true})
	}
	h.AddNet("devices/pci0000:00/0000:00:14.0", sysfstest.Net{Name: "spare0", Index: 3, Link: 3})
	each, err := config.Parse(config.File{Data: []byte("domain = \"example.com\"\n[[resource]]\nname = \"each\"\neach = \"node\"\nmatch.glob = \"/dev/tty*\"\n")})
	if err != nil {
		t.Fatal(err)
	}
	snap, scanner := sysfstest.Scan(t, inventory.Options{Sysfs: h.Sysfs(), Dev: h.Dev()})
	attrs := scanner.Attributes()
	permitted := matchers.Match(each, snap, nil, matchers.Options{Host: matchersHost{attrs}})
	all := catalog.New(snap, attrs, nil).List(matchers.Result{}, permitted)
	if msr := find(t, all, "/dev/cpu/*/msr"); !msr.Refused || len(msr.Nodes) != 256 {
		t.Errorf("%d nodes of CPUs, refused %v", len(msr.Nodes), msr.Refused)
	}
	for name, want := range map[string]bool{"cali*": true, "veth*": true, "0000:00:14.0": false} {
		if got := find(t, all, name).InUse != ""; got != want {
			t.Errorf("%s is in use: %v", name, got)
		}
	}
	short, hidden := catalog.Fold(all)
	if len(short) != 3 || hidden != 256+4 {
		t.Errorf("%d entries, and %d nodes and interfaces are hidden: want the controller, the chipset and the terminals, and 260", len(short), hidden)
	}
	for _, d := range short {
		isChipset := d.ID == "8086:2035"
		if isChipset && d.More != 19 {
			t.Errorf("%d more parts of the chipset: want 19", d.More)
		}
	}
}

// matchersHost is a host without CDI devices and conditions.
type matchersHost struct{ *inventory.Attributes }

func (matchersHost) Exists(string) (exists, known bool) { return false, true }

func (matchersHost) Glob(pattern.Values, time.Time) ([]string, bool) { return nil, true }

// The cameras and sound cards of a board have no IDs: the driver selects them, with everything that they
// need, or else the path.
func TestStarterOfBoards(t *testing.T) {
	t.Parallel()
	video := func(name string) sysfstest.Node { return sysfstest.Node{Name: name, Subsystem: "video4linux"} }
	sound := func(name string) sysfstest.Node { return sysfstest.Node{Name: "snd/" + name, Subsystem: "sound"} }
	for name, c := range map[string]struct {
		platform sysfstest.Platform
		resource string
		lines    []string
	}{
		"pipeline": {
			sysfstest.Platform{Path: "1f00110000.csi", Driver: "rp1-cfe", Nodes: []sysfstest.Node{
				video("video0"), video("video1"), {Name: "media0", Subsystem: "media"}, video("v4l-subdev0"),
			}},
			"camera",
			[]string{`match.driver = "rp1-cfe"`, `match.glob = ["/dev/video*", "/dev/media*", "/dev/v4l-subdev*"]`, `each = "device"`},
		},
		"without a driver": {
			sysfstest.Platform{Path: "fe801000.csi", Nodes: []sysfstest.Node{video("video0")}},
			"camera",
			[]string{`match.glob = "/dev/video0"`, `each = "device"`},
		},
		"sound": {
			sysfstest.Platform{Path: "soc/fe00b840.mailbox", Driver: "bcm2835-audio", Nodes: []sysfstest.Node{sound("controlC0"), sound("pcmC0D0p")}},
			"sound",
			[]string{`match.driver = "bcm2835-audio"`, `match.glob = "/dev/snd/*"`, `each = "device"`},
		},
	} {
		h := newHost(t)
		h.AddPlatform(c.platform)
		found := texts(catalogOf(t, h).Starter())
		text, ok := found[c.resource]
		if !ok || len(found) != 1 {
			t.Errorf("%s: %v, want a resource %q", name, found, c.resource)
			continue
		}
		_, lines, _ := strings.Cut(text, "name = ")
		got := strings.Split(strings.TrimSpace(lines), "\n")[1:]
		if !slices.Equal(got, c.lines) {
			t.Errorf("%s:\n%s\nwant %q", name, text, c.lines)
		}
	}
}
