package agent_test

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
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

// Something else in the place of the lock file is removed.
func TestLockIsNoFile(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(path string) error{
		"directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"loop":      func(path string) error { return os.Symlink("lock", path) },
		"socket": func(path string) error {
			return unix.Mknod(path, unix.S_IFSOCK|0o600, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, zigbee)
			n.addSticks(1)
			err := os.Mkdir(n.options.Paths.RunDir, 0o755)
			err = errors.Join(err, make(filepath.Join(n.options.Paths.RunDir, "lock")))
			must(t, err)
			n.serve()
			n.untilListed("example.com/zigbee", []string{stickID}, nil)
			if !agent.Serving(n.options.Paths) {
				t.Error("the lock is not held")
			}
		})
	}
}

// Without a usable run directory, what needs no link is served.
func TestUnusableRunDirectory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root: another user is told to become root")
	}
	for name, unusable := range map[string]func(n *node){
		// The kernel makes no file there for anybody.
		"read-only": func(n *node) { n.options.Paths.RunDir = "/proc/self" },
		"lock is a directory with files": func(n *node) {
			dir := filepath.Join(n.options.Paths.RunDir, "lock", "links")
			err := os.MkdirAll(dir, 0o755)
			err = errors.Join(err, os.WriteFile(filepath.Join(n.options.Paths.RunDir, "links"), nil, 0o600))
			must(n, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, zigbee+"[[resource]]\nname = \"part\"\nmatch.glob = \"/dev/part-*\"\n")
			n.addSticks(1)
			n.addNodes("part-0")
			unusable(n)
			n.serve()
			n.untilListed("example.com/part", []string{"part-0"}, nil)
			if _, err := n.kubelet.Allocate(t.Context(), "example.com/part", "part-0"); err != nil {
				t.Error(err)
			}
			if !strings.Contains(n.log.String(), "the run directory can't be used") {
				t.Error("the log does not say what is missing")
			}
			if name == "read-only" {
				n.untilListed("example.com/zigbee", nil, []string{stickID})
			}
		})
	}
}

// A disk that hangs delays no device, and what could not be saved meanwhile is saved
// when it works again.
func TestHungDiskDelaysNoDevice(t *testing.T) {
	t.Parallel()
	n := newNode(t, "[[resource]]\nname = \"example.com/a\"\nmatch.glob = \"/dev/ttyA*\"\n")
	state := n.options.Paths.StateDir
	must(t, os.MkdirAll(state, 0o700))
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

// What could not be saved is saved at the end, if that can be by then.
func TestEndSavesWhatFailed(t *testing.T) {
	t.Parallel()
	n := newNode(t, "domain = \"example.com\"\n[[resource]]\nname = \"serial\"\nmatch.glob = \"/dev/ttyA*\"\n")
	n.addNodes("ttyA1")
	state := n.options.Paths.StateDir
	inTheWay := filepath.Join(state, "state.json.tmp")
	must(t, os.MkdirAll(filepath.Join(inTheWay, "x"), 0o700))
	_, stop := n.serve()
	n.untilLogged("state can't be saved")
	// At once: the program may be about to write there.
	must(t, os.Rename(inTheWay, state+".moved"))
	stop()
	if text, err := os.ReadFile(filepath.Join(state, "state.json")); !strings.Contains(string(text), "ttyA1") {
		t.Errorf("saved %s, %v", text, err)
	}
}

// A read of the host that blocks does not keep the program from ending, with its state saved, and
// the configuration counts as not survived.
func TestEndWhileAScanHangs(t *testing.T) {
	t.Parallel()
	n := newNode(t, "domain = \"example.com\"\n[[resource]]\nname = \"serial\"\nmatch.glob = \"/dev/ttyA*\"\n")
	n.addNodes("ttyA1")
	state := filepath.Join(n.options.Paths.StateDir, "state.json")
	_, stop := n.serve()
	n.untilListed("example.com/serial", []string{"ttyA1"}, nil)
	stop() // it is the last good configuration now
	n.configure("domain = \"example.com\"\n[[resource]]\nname = \"serial\"\nmatch.glob = \"/dev/tty*\"\n")
	a, stop := n.serve()
	<-a.Settled()
	isSaved := func() bool {
		text, _ := os.ReadFile(state)
		return strings.Contains(string(text), "ttyA1")
	}
	hung, end := hang(t, n.options.Paths.Dev)
	defer end()
	n.host.AddNode("", sysfstest.Node{Name: "ttyA2"})
	<-hung
	began := time.Now()
	stop()
	if took := time.Since(began); took > limit/2 {
		t.Errorf("it took %v to end", took)
	}
	if !isSaved() {
		t.Error("the state is not saved")
	}
	trial := filepath.Join(n.options.Paths.StateDir, "config-trial.json")
	if _, err := os.Stat(trial); err != nil {
		t.Errorf("the trial of the configuration has ended: %v", err)
	}
	const want = "the main loop has not ended its pass"
	if !strings.Contains(n.log.String(), want) {
		t.Errorf("the log does not say %q", want)
	}
}

// CDI specs of other programs on a mount that hangs delay no device. What was read before
// stays.
func TestHungForeignSpec(t *testing.T) {
	t.Parallel()
	n := newNode(t, parts("a", "b container.cdi = true")+"[[resource]]\nname = \"c\"\nmatch.cdi_device = \"vendor.com/c=*\"\n"+
		"[[resource]]\nname = \"d\"\nmatch.cdi_device = \"vendor.com/d=*\"\nidentity = \"name\"\n")
	dir := t.TempDir()
	n.options.Paths.SpecDirs, n.options.Allow.CDI = []string{dir, n.options.Paths.CDIDir}, []string{"vendor.com/*"}
	appear := func(kind, device string) {
		t.Helper()
		text := `{"cdiVersion": "0.6.0", "kind": "` + kind + `", "devices": [{"name": "` + device + `", "containerEdits": {"deviceNodes": [{"path": "/dev/c-0"}]}}]}`
		temp := filepath.Join(t.TempDir(), "temp")
		must(t, errors.Join(os.WriteFile(temp, []byte(text), 0o600), os.Rename(temp, filepath.Join(dir, device+".json"))))
	}
	allocate := func(resource, id string) {
		t.Helper()
		if _, err := n.kubelet.Allocate(t.Context(), "example.com/"+resource, id); err != nil {
			t.Error(err)
		}
	}
	appear("vendor.com/c", "x")
	appear("vendor.com/d", "xd")
	n.addNodes("a-0", "b-0", "c-0")
	hung, end := hang(t, dir)
	defer func() { end() }()
	_, stop := n.serve()
	n.untilListed("example.com/a", []string{"a-0"}, nil)
	n.untilListed("example.com/b", []string{"b-0"}, nil)
	<-hung
	end()
	const x, y = "cdi:vendor.com:c:x", "cdi:vendor.com:c:y"
	n.untilListed("example.com/c", []string{x}, nil)

	hung, end = hang(t, dir)
	appear("vendor.com/c", "y")
	<-hung
	n.addNodes("a-1", "b-1")
	n.untilListed("example.com/a", []string{"a-0", "a-1"}, nil)
	n.untilListed("example.com/b", []string{"b-0", "b-1"}, nil)
	n.untilListed("example.com/c", []string{x}, nil)
	allocate("a", "a-1")
	allocate("b", "b-1")
	allocate("c", x)
	end()
	n.untilListed("example.com/c", []string{x, y}, nil)
	stop()

	// After a restart the devices of specs are unread, not gone.
	hung, end = hang(t, dir)
	a, _ := n.serve()
	<-hung
	n.untilListed("example.com/c", nil, []string{x, y})
	n.untilListed("example.com/d", nil, []string{"xd"})
	n.untilReason(a, "example.com/c", x, ledger.ReasonUnread)
	n.untilReason(a, "example.com/d", "xd", ledger.ReasonUnread)
	end()
	n.untilListed("example.com/c", []string{x, y}, nil)
}

// Without CDI in the configuration nobody opens the specs of other programs.
func TestForeignSpecsAreReadIfNeeded(t *testing.T) {
	t.Parallel()
	n := newNode(t, parts("a"))
	dir := t.TempDir()
	n.options.Paths.SpecDirs = []string{dir}
	must(t, os.WriteFile(filepath.Join(dir, "x.json"), nil, 0o600))
	opened, end := hang(t, dir)
	defer end()
	n.addNodes("a-0")
	_, stop := n.serve()
	n.untilListed("example.com/a", []string{"a-0"}, nil)
	stop()
	select {
	case <-opened:
		t.Error("a spec was opened")
	default:
	}
}

// A device does not match by the lack of a hung attribute, nor is it gone after a restart:
// it is back when the attribute answers, without another event.
func TestHungAttribute(t *testing.T) {
	t.Parallel()
	const resource, other = "example.com/zigbee", "usb:10c4:ea60:BBBB2222"
	n := newNode(t, strings.Replace(zigbee, "usb = {", `attr = { "power/control" = "!auto" }, usb = {`, 1))
	dir := n.addSticks(1)
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB1"))
	must(t, os.Mkdir(filepath.Join(n.host.Sysfs(), dir, "power"), 0o755))
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

// No event announces that somebody has removed a link: the Allocate call that misses it has it made again.
func TestRemovedLinks(t *testing.T) {
	t.Parallel()
	n := newNode(t, zigbee)
	n.addSticks(1)
	n.serve()
	n.untilListed("example.com/zigbee", []string{stickID}, nil)
	must(t, os.RemoveAll(filepath.Join(n.options.Paths.RunDir, "links")))
	_, err := n.kubelet.Allocate(t.Context(), "example.com/zigbee", stickID)
	if err == nil || !strings.Contains(err.Error(), "its link") {
		t.Errorf("Allocate: %v, want an error about the link", err)
	}
	n.eventually("a link", func() bool {
		_, err := n.kubelet.Allocate(t.Context(), "example.com/zigbee", stickID)
		return err == nil
	})
}
