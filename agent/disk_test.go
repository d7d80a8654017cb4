package agent_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/sysfstest"
	"github.com/generic-dp/generic-dp/ledger"
)

// hang blocks every open of a file in dir until end is called (fanotify(7)). The first one
// closes hung.
func hang(t *testing.T, dir string) (hung <-chan struct{}, end func()) {
	t.Helper()
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK, unix.O_RDONLY)
	if err != nil {
		t.Skipf("needs root: fanotify: %v", err)
	}
	notify := os.NewFile(uintptr(fd), "fanotify")
	if err := unix.FanotifyMark(fd, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM|unix.FAN_EVENT_ON_CHILD, unix.AT_FDCWD, dir); err != nil {
		t.Skipf("fanotify: %v", err)
	}
	first := make(chan struct{})
	go func() {
		defer close(first)
		var event [1]unix.FanotifyEventMetadata
		_ = binary.Read(notify, binary.NativeEndian, event[:]) // the file stays as it is until it is answered
	}()
	return first, func() { _ = notify.Close() }
}

// A disk that hangs delays no device, and what could not be saved meanwhile is saved
// when it works again.
func TestHungDiskDelaysNoDevice(t *testing.T) {
	t.Parallel()
	n := newNode(t, "[[resource]]\nname = \"example.com/a\"\nmatch.glob = \"/dev/ttyA*\"\n")
	state := n.options.Paths.StateDir
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	hung, end := hang(t, state)
	defer end()
	n.host.AddNode("", sysfstest.Node{Name: "ttyA0"})
	_, stop := n.serve()
	n.untilListed("example.com/a", []string{"ttyA0"}, nil)
	<-hung
	n.host.AddNode("", sysfstest.Node{Name: "ttyA1"})
	n.untilListed("example.com/a", []string{"ttyA0", "ttyA1"}, nil)
	end()
	stop()
	if text, err := os.ReadFile(state + "/state.json"); !strings.Contains(string(text), "ttyA1") {
		t.Errorf("saved at the end: %s, %v; want ttyA1", text, err)
	}
}

// CDI specs of others that can't be read delay no device that is not injected by CDI, and
// no list. Before they are read once, the program does not know which kinds it may write;
// after that, what was read is valid.
func TestHungForeignSpec(t *testing.T) {
	t.Parallel()
	const byCDI, other = "example.com/cdi", "example.com/other"
	n := newNode(t, "[[resource]]\nname = \""+byCDI+"\"\nmatch.glob = \"/dev/ttyC*\"\ncontainer.cdi = true\n"+
		"[[resource]]\nname = \""+other+"\"\nmatch.glob = \"/dev/ttyA*\"\n")
	etc := t.TempDir()
	n.options.Paths.SpecDirs = []string{etc, n.options.Paths.CDIDir}
	foreign := func(kind string) {
		t.Helper()
		text := `{"cdiVersion":"0.5.0","kind":"` + kind + `","devices":[{"name":"x","containerEdits":{"env":["A=1"]}}]}`
		temp := filepath.Join(t.TempDir(), "spec")
		if err := errors.Join(os.WriteFile(temp, []byte(text), 0o600), os.Rename(temp, filepath.Join(etc, "foreign.json"))); err != nil {
			t.Fatal(err)
		}
	}
	foreign("vendor.com/gpu")
	if err := os.Mkdir(n.options.Paths.CDIDir, 0o700); err != nil {
		t.Fatal(err)
	}
	hung, end := hang(t, etc)
	n.addNodes("ttyA0", "ttyC0")
	a, _ := n.serve()
	<-hung
	n.untilListed(other, []string{"ttyA0"}, nil)
	n.untilReason(a, byCDI, "ttyC0", "CDI specs: no answer from the file system of "+etc+" or "+n.options.Paths.CDIDir)
	n.addNodes("ttyA1")
	n.untilListed(other, []string{"ttyA0", "ttyA1"}, nil)
	if n.spec(byCDI) != "" {
		t.Error("a kind that may be another program's was written")
	}
	end()
	n.untilListed(byCDI, []string{"ttyC0"}, nil)

	foreign("vendor.com/nic")
	hung, end = hang(t, etc)
	n.addNodes("ttyC1")
	<-hung
	n.untilListed(byCDI, []string{"ttyC0", "ttyC1"}, nil)
	foreign(byCDI)
	end()
	n.untilReason(a, byCDI, "ttyC1", `CDI kind "`+byCDI+`" is taken by `+filepath.Join(etc, "foreign.json"))
}

// What could not be saved is saved at the end, if that can be by then.
func TestEndSavesWhatFailed(t *testing.T) {
	t.Parallel()
	n := newNode(t, "domain = \"example.com\"\n[[resource]]\nname = \"serial\"\nmatch.glob = \"/dev/ttyA*\"\n")
	n.addNodes("ttyA1")
	state := n.options.Paths.StateDir
	inTheWay := filepath.Join(state, "state.json.tmp")
	if err := os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, stop := n.serve()
	n.eventually("a warning", func() bool { return strings.Contains(n.log.String(), "state can't be saved") })
	if err := os.RemoveAll(inTheWay); err != nil {
		t.Fatal(err)
	}
	stop()
	if text, err := os.ReadFile(filepath.Join(state, "state.json")); !strings.Contains(string(text), "ttyA1") {
		t.Errorf("saved %s, %v", text, err)
	}
}

// A device does not match by the lack of a hung attribute, nor is it gone after a restart:
// it is back when the attribute answers, without another event.
func TestHungAttribute(t *testing.T) {
	t.Parallel()
	const resource, other = "example.com/zigbee", "usb:10c4:ea60:BBBB2222"
	n := newNode(t, strings.Replace(zigbee, "usb = {", `attr = { "power/control" = "!auto" }, usb = {`, 1))
	n.addBus()
	dir := n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB1"))
	if err := os.Mkdir(filepath.Join(n.host.Sysfs(), dir, "power"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.setAttr(dir, "power/control", "on")
	_, end := hang(t, filepath.Join(n.host.Sysfs(), dir, "power"))
	_, stop := n.serve()
	n.untilListed(resource, []string{other}, nil)
	const third = "usb:10c4:ea60:CCCC3333"
	n.host.AddUSB(stick("1-3", "CCCC3333", "ttyUSB2"))
	n.untilListed(resource, []string{other, third}, nil)
	end()
	n.untilListed(resource, []string{stickID, other, third}, nil)
	stop()

	_, end = hang(t, filepath.Join(n.host.Sysfs(), dir, "power"))
	a, _ := n.serve()
	n.untilListed(resource, []string{other, third}, []string{stickID})
	n.untilReason(a, resource, stickID, ledger.ReasonUnread)
	n.host.AddUSB(stick("1-4", "DDDD4444", "ttyUSB3"))
	n.untilListed(resource, []string{other, third, "usb:10c4:ea60:DDDD4444"}, []string{stickID})
	n.untilReason(a, resource, stickID, ledger.ReasonUnread)
	end()
	n.untilListed(resource, []string{stickID, other, third, "usb:10c4:ea60:DDDD4444"}, nil)
}
