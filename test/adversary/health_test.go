//go:build adversary

package adversary

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// maxFiles bounds the open files of the program with 32 health checks at the same time.
const maxFiles = 100

// silentAddress returns a TCP address that answers no connection: the queue of its listener
// is full, so that the kernel drops the first packet of each connection.
func silentAddress(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	loopback := [4]byte{127, 0, 0, 1}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: loopback}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", bound.(*unix.SockaddrInet4).Port)
	c, err := net.Dial("tcp", address) // the only connection that fits
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return address
}

// files is the number of open files of the program.
func (n *node) files() int {
	n.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.cmd.Process.Pid))
	n.must(err)
	return len(open)
}

// Thousands of health checks of a host that does not answer use few connections, and delay
// no other resource.
func TestHealthChecks(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.configure(goodConfig + resourceWith("health.interval = \"5s\"\nhealth.tcp = \""+silentAddress(t)+"\"\nmatch.virtual = ["+repeat(5000, `"d%",`)+"]"))
	for range 3 {
		n.start()
		n.waitServed()
		var status string
		n.must(poll(func() error {
			if files := n.files(); files > maxFiles {
				n.fatal("%d open files, want at most %d", files, maxFiles)
			}
			n.checkServes()
			var err error
			status, err = n.get(n.Context(), "/metrics")
			if err == nil && !strings.Contains(status, "example.com/hostile") {
				err = fmt.Errorf("the resource is not served")
			}
			return err
		}))
		// Two rounds of checks, until some have failed.
		n.must(poll(func() error {
			if files := n.files(); files > maxFiles {
				n.fatal("%d open files, want at most %d", files, maxFiles)
			}
			n.checkServes()
			out, err := n.command("status", "--listen", n.address, "-o", "json")
			if err == nil && !strings.Contains(out, "does not answer") {
				err = fmt.Errorf("no check has failed")
			}
			return err
		}))
		n.stop()
	}
	out, err := n.command("check", "--config", n.configFile())
	if !strings.Contains(out, "of 1000") {
		t.Errorf("check: %v, %.2000s\nwant the limit of health checks", err, out)
	}
}
