package health

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
)

// oneOf is a condition: one of these values, or absent if it has an empty one.
type oneOf []string

func (c oneOf) Patterns() []string { return slices.Clone(c) }

func (c oneOf) Match(have ...string) bool {
	return slices.ContainsFunc(have, func(h string) bool { return slices.Contains(c, h) }) || len(have) == 0 && slices.Contains(c, "")
}

// below maps the host's paths to those below a directory of the test.
func below(dir string) func(string) string {
	return func(path string) string { return dir + path }
}

func write(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOpen(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"dev/ttyUSB0": "", "dev/file": ""})
	if err := errors.Join(
		// Opening it would wait for a writer.
		unix.Mkfifo(filepath.Join(dir, "dev/fifo"), 0o600),
		os.Symlink("ttyUSB0", filepath.Join(dir, "dev/link")),
	); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		nodes []string
		want  string
	}{
		{[]string{"/dev/ttyUSB0"}, ""},
		{[]string{"/dev/fifo"}, ""},
		{[]string{"/dev/ttyUSB0", "/dev/ttyUSB1"}, "open /dev/ttyUSB1: no such file or directory"},
		{[]string{"/dev/ttyUSB1", "/dev/ttyUSB0"}, "open /dev/ttyUSB1: no such file or directory"},
		{[]string{"/dev/link"}, "open /dev/link: too many levels of symbolic links"},
		{[]string{"/dev/file/x"}, "open /dev/file/x: not a directory"},
	} {
		got := Once(t.Context(), below(dir), map[string]device.Check{"x": {Open: tc.nodes}}, 10*s)
		if got["x"] != tc.want {
			t.Errorf("%v: %q, want %q", tc.nodes, got["x"], tc.want)
		}
	}
	if open, err := os.ReadDir("/proc/self/fd"); err == nil {
		for _, fd := range open {
			if target, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(target, dir) {
				t.Errorf("%s was left open", target)
			}
		}
	}
}

func TestOpenReason(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{unix.EBUSY, ""},
		{unix.ENXIO, "no such device or address"},
		{&os.PathError{Op: "open", Path: "/here/dev/x", Err: unix.EIO}, "input/output error"},
		{unix.EACCES, "permission denied: this program needs read access to the node"},
		{unix.EPERM, "operation not permitted: this program's container has to be allowed the device"},
	} {
		if got := openReason(tc.err); got != tc.want {
			t.Errorf("openReason(%v) = %q, want %q", tc.err, got, tc.want)
		}
	}
}

func TestAttr(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"sys/devices/hub/dev/state":              "configured\n",
		"sys/devices/hub/state":                  "of the hub\n",
		"sys/devices/hub/dev/if0/tty/state":      "enabled\n",
		"sys/devices/hub/dev/power/level":        " on \n",
		"sys/devices/hub/dev/empty":              "\n",
		"sys/devices/hub/dev/long":               strings.Repeat("ä", 3000),
		"sys/devices/hub/dev/quoted":             "a\x00\"b\n",
		"sys/devices/hub/dev/directory/anything": "",
	})
	if err := os.WriteFile(filepath.Join(dir, "sys/devices/hub/dev/password"), []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const hardware = "/sys/devices/hub/dev"
	tty := []string{hardware + "/if0/tty", hardware + "/if0", hardware}
	other := []string{hardware + "/if1", hardware}
	for _, tc := range []struct {
		name string
		dirs [][]string
		want oneOf
		says string
	}{
		{"state", [][]string{tty}, oneOf{"enabled"}, ""},
		{"state", [][]string{other}, oneOf{"configured"}, ""},
		{"state", [][]string{tty}, oneOf{"configured"}, `attr state is "enabled": want "configured"`},
		{"state", [][]string{other, tty}, oneOf{"enabled", "on"}, `attr state is "configured": want "enabled", "on"`},
		{"state", [][]string{tty, other}, oneOf{"enabled", "configured"}, ""},
		{"power/level", [][]string{tty, other}, oneOf{"on"}, ""},
		{"none", [][]string{tty, other}, oneOf{"x"}, `attr none is absent: want "x"`},
		{"none", [][]string{tty, other}, oneOf{""}, ""},
		{"state/none", [][]string{tty}, oneOf{"x"}, `attr state/none is absent: want "x"`},
		{"state", nil, oneOf{"x"}, `attr state is absent: want "x"`},
		{"empty", [][]string{tty}, oneOf{"x"}, `attr empty is "": want "x"`},
		{"quoted", [][]string{tty}, oneOf{"x"}, `attr quoted is "a\x00\"b": want "x"`},
		{"long", [][]string{tty}, oneOf{"x"}, `attr long is "` + strings.Repeat("ä", 40) + `"...: want "x"`},
		{"password", [][]string{tty}, oneOf{"x"}, "attr password: only attributes that everybody may read are read"},
		{"directory", [][]string{tty}, oneOf{"x"}, "attr directory: not a regular file"},
	} {
		c := device.Check{Attrs: []device.AttrCheck{{Name: tc.name, Dirs: tc.dirs, Want: tc.want}}}
		if got := Once(t.Context(), below(dir), map[string]device.Check{"x": c}, 10*s); got["x"] != tc.says {
			t.Errorf("%s in %v: %q, want %q", tc.name, tc.dirs, got["x"], tc.says)
		}
	}
}

// loopback is an address of the host that nothing else uses, so that a closed port
// stays free.
const loopback = "127.91.7.5:0"

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// closedPort is an address without a listener.
func closedPort(t *testing.T) string {
	t.Helper()
	l := listen(t, loopback)
	_ = l.Close()
	return l.Addr().String()
}

func TestTCP(t *testing.T) {
	t.Parallel()
	l := listen(t, loopback)
	address := l.Addr().String()
	ask := func() string {
		return Once(t.Context(), below(""), map[string]device.Check{"x": {TCP: address}}, 10*s)["x"]
	}
	if got := ask(); got != "" {
		t.Errorf("an address that listens: %q", got)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the check sent something, or left the connection open: %d, %v", n, err)
	}
	_, _ = conn.Close(), l.Close()
	if got, want := ask(), "tcp "+address+": connection refused"; got != want {
		t.Errorf("an address that does not listen: %q, want %q", got, want)
	}
	// The same address passes when it listens again.
	listen(t, address)
	if got := ask(); got != "" {
		t.Errorf("an address that listens again: %q", got)
	}
}

func TestTCPReason(t *testing.T) {
	t.Parallel()
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for _, tc := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{dial(&net.DNSError{Err: "no such host", Name: "x", Server: "10.0.0.1:53", IsNotFound: true}), "no such host"},
		{dial(&net.DNSError{Err: "read udp 10.0.0.2:41234->10.0.0.1:53: i/o timeout", Name: "x", IsTimeout: true}), "the name of the host can't be resolved"},
		{dial(context.DeadlineExceeded), "does not answer"},
		{dial(os.NewSyscallError("connect", unix.ETIMEDOUT)), "does not answer"},
		{dial(os.NewSyscallError("connect", unix.EHOSTUNREACH)), "no route to host"},
	} {
		if got := tcpReason(tc.err); got != tc.want {
			t.Errorf("tcpReason(%v) = %q, want %q", tc.err, got, tc.want)
		}
	}
}

// All parts of a check must hold; the first failure is the reason.
func TestAllPartsOfACheckMustHold(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{"dev/x": "", "sys/devices/x/a": "1\n", "sys/devices/x/b": "2\n"})
	attr := func(name, want string) device.AttrCheck {
		return device.AttrCheck{Name: name, Dirs: [][]string{{"/sys/devices/x"}}, Want: oneOf{want}}
	}
	for _, tc := range []struct {
		check device.Check
		want  string
	}{
		{device.Check{}, ""},
		{device.Check{Open: []string{"/dev/x"}, Attrs: []device.AttrCheck{attr("a", "1"), attr("b", "2")}}, ""},
		{device.Check{Open: []string{"/dev/y"}, Attrs: []device.AttrCheck{attr("a", "2")}}, "open /dev/y: no such file or directory"},
		{device.Check{Open: []string{"/dev/x"}, Attrs: []device.AttrCheck{attr("a", "1"), attr("b", "1")}, TCP: closedPort(t)}, `attr b is "2": want "1"`},
	} {
		if got := Once(t.Context(), below(dir), map[string]device.Check{"x": tc.check}, 10*s); got["x"] != tc.want {
			t.Errorf("%+v: %q, want %q", tc.check, got["x"], tc.want)
		}
	}
}
