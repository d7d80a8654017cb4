//go:build adversary

package adversary

import (
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// A container with mknod, or a USB device by way of udev, chooses names of nodes: they reach
// no terminal and no log unescaped, and keep no other device from being served.
func TestNames(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for i, name := range []string{"x\x1b[2J\x1b]0;title\x07", "x\u202egnp", "x\xff\xfe", "x\n\tline", "x" + strings.Repeat("y", 254), "x\"`$(id)\\", "x;,=|", "x..", "x ", "x\u200b"} {
		n.must(unix.Mknod(filepath.Join(n.host.Dev(), name), unix.S_IFCHR|0o600, int(unix.Mkdev(240, uint32(i)))))
	}
	n.configure(goodConfig + "[[resource]]\nname = \"x\"\nmatch.glob = \"/dev/x*\"\ncontainer.env.NODES = \"${devnode}\"\n")
	n.serve()
	n.waitReady()
	for _, args := range [][]string{
		{"status", "--listen", n.address},
		{"devices", "--config", n.path("config"), "--dev", n.host.Dev(), "--sysfs", n.host.Sysfs()},
		{"try", "--config", n.path("config"), "--dev", n.host.Dev(), "--sysfs", n.host.Sysfs()},
	} {
		out, err := n.command(args...)
		if err != nil || !strings.Contains(out, "example.com/x") {
			t.Errorf("%s: %v, want output with example.com/x, got\n%s", args[0], err, out)
		}
		for _, line := range strings.Split(out, "\n") {
			if bad := strings.IndexFunc(line, func(r rune) bool { return r != '\t' && !unicode.IsPrint(r) }); bad >= 0 || !utf8.ValidString(line) {
				t.Errorf("%s prints unescaped %+q", args[0], line)
			}
		}
	}
	n.mu.Lock()
	for _, line := range n.log {
		if bad := strings.IndexFunc(strings.TrimSpace(line), func(r rune) bool { return !unicode.IsPrint(r) }); bad >= 0 {
			t.Errorf("the log has unescaped %+q", line)
		}
	}
	n.mu.Unlock()
	list, _ := n.kubelet.Latest("example.com/x")
	for _, id := range list.Healthy() {
		if _, err := n.kubelet.Allocate(t.Context(), "example.com/x", id); err != nil {
			t.Errorf("%q is listed as Healthy, and Allocate fails: %v", id, err)
		}
	}
	n.stop()
}
