package reset_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/host/reset"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// bed is a host with a function and a stick. Its kernel does not react to resets.
type bed struct {
	*sysfstest.Host
	testing.TB
	function, stick string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	h := sysfstest.NewHost(t, sysfstest.HostOptions{})
	b := &bed{Host: h, TB: t}
	controller := h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330"})
	h.AddRootHub(controller, 1, "480")
	b.stick = h.AddUSB(sysfstest.USB{Port: "1-1", Vendor: "10c4", Product: "ea60", Interfaces: []sysfstest.Interface{{Class: "ff"}}})
	b.function = h.AddPCI(sysfstest.PCI{Address: "0000:3b:00.0", Vendor: "10ee", Device: "5000", Class: "120000"})
	return b
}

// write makes an attribute of the function.
func (b *bed) write(name, value string) {
	b.Helper()
	if err := os.WriteFile(filepath.Join(b.Sysfs(), b.function, name), []byte(value), 0o200|0o400); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) reset(way, path string) error {
	return reset.Host{Sysfs: b.Sysfs(), Dev: b.Dev()}.Reset(way, path)
}

func (b *bed) want(err error, text string) {
	b.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		b.Errorf("error %v, want %q", err, text)
	}
}

func TestPCI(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.want(b.reset(reset.PCI, b.function), "no attribute reset")
	b.write("reset", "")
	b.write("reset_method", "\n")
	b.want(b.reset(reset.PCI, b.function), "reset_method is empty")
	b.write("reset_method", "flr pm\n")
	if err := b.reset(reset.PCI, b.function); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(filepath.Join(b.Sysfs(), b.function, "reset")); string(text) != "1" {
		t.Errorf("reset has %q, want 1", text)
	}
}

// Root may write a file that is read-only for everybody, so that another user shows the error.
func TestNoAccess(t *testing.T) {
	t.Parallel()
	if os.Getuid() == 0 {
		t.Skip("root has access")
	}
	b := newBed(t)
	b.write("reset", "")
	if err := os.Chmod(filepath.Join(b.Sysfs(), b.function, "reset"), 0); err != nil {
		t.Fatal(err)
	}
	if err := b.reset(reset.PCI, b.function); !errors.Is(err, reset.ErrDenied) {
		t.Errorf("error %v, want ErrDenied", err)
	}
}

// Nothing but the node of the device gets the request.
func TestUSB(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.want(b.reset(reset.USB, b.stick), "is not the node of the device") // a file here
	b.RemoveUSB("1-1")
	b.want(b.reset(reset.USB, b.stick), "the device is gone")
}

// An interface that this /sys does not show may be in a container.
func TestInterfaceElsewhere(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.write("reset", "")
	net := b.AddNet(b.function, sysfstest.Net{Name: "eth7"})
	if err := b.reset(reset.PCI, b.function); err != nil {
		t.Errorf("a function whose interface is here: %v", err)
	}
	b.write("reset", "")
	b.Remove(net)
	b.want(b.reset(reset.PCI, b.function), "another network namespace")
	if text, _ := os.ReadFile(filepath.Join(b.Sysfs(), b.function, "reset")); len(text) > 0 {
		t.Error("the function was reset")
	}
}
