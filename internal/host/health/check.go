// Package health checks devices beyond their presence: that a node opens, that an
// attribute has the wanted value, that an address accepts connections.
//
// A check may hang as long as a driver or a network does. Each one runs in a goroutine
// of its own: after a timeout it fails until it returns, does not delay other checks, and
// is not started a second time. The number of checks that run, and of those that hang, is
// limited.
package health

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

const (
	noAnswer = "does not answer"
	// maxValue is the maximum size of an attribute in bytes. Some files of sysfs are the
	// memory of a device.
	maxValue = 64 << 10
	// maxQuoted is the number of bytes of an attribute that a reason quotes.
	maxQuoted = 80
	// dialTimeout is shorter than the timeout of a check, so that the reason can
	// tell a host that does not answer from a name that does not resolve.
	dialTimeout = timeout - time.Second
)

// host is how a check reaches the host. Tests replace its functions, so that checks need no
// device and no network.
type host struct {
	// local returns the path in this mount namespace of a path of the host.
	local func(path string) string
	// open opens and closes the node at a local path.
	open func(path string) error
	// dial connects to an address and closes the connection.
	dial func(ctx context.Context, address string) error
}

// newHost returns a host whose checks use the kernel.
func newHost(local func(string) string) host {
	return host{local: local, open: openNode, dial: dialTCP}
}

// attempt is one run of a check.
type attempt struct {
	step atomic.Pointer[string] // in progress
}

// timedOut returns the reason if the attempt times out in its current step. The prober calls it
// in another goroutine, while the attempt hangs.
func (a *attempt) timedOut() string {
	if step := a.step.Load(); step != nil {
		return *step + ": " + noAnswer
	}
	return noAnswer
}

// begin sets the step in progress and returns it, as the beginning of a reason.
func (a *attempt) begin(step string) string {
	a.step.Store(&step)
	return step
}

// run returns the first reason why a check fails, or an empty string if it passes. Only the TCP
// connection respects ctx. All other steps may hang in the kernel.
func (h host) run(ctx context.Context, c device.Check, a *attempt) string {
	// The address comes last, because a host that does not answer takes seconds.
	for _, node := range c.Open {
		step := a.begin("open " + node)
		if reason := openReason(h.open(h.local(node))); reason != "" {
			return step + ": " + reason
		}
	}
	for _, attr := range c.Attrs {
		step := a.begin("attr " + attr.Name)
		if reason := h.attr(attr); reason != "" {
			return step + reason
		}
	}
	for _, link := range c.Links {
		step := a.begin("link of " + link.Of)
		if reason := h.link(link); reason != "" {
			return step + ": " + reason
		}
	}
	if c.TCP != "" {
		step := a.begin("tcp " + c.TCP)
		if reason := tcpReason(h.dial(ctx, c.TCP)); reason != "" {
			return step + ": " + reason
		}
	}
	return ""
}

// openNode opens and closes a node. It waits for no carrier and no writer, acquires no
// terminal, and does not follow a link that replaced the node.
func openNode(path string) error {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd) // even if it fails, the descriptor is gone
		}
		// A signal may interrupt an open that waits for the device.
		if err != unix.EINTR {
			return err
		}
	}
}

// openReason returns why a node failed to open. A busy node passes: a container has opened
// it exclusively.
func openReason(err error) string {
	switch {
	case err == nil || errors.Is(err, unix.EBUSY):
		return ""
	case errors.Is(err, unix.EACCES):
		return "permission denied: this program needs read access to the node"
	case errors.Is(err, unix.EPERM):
		// From the device controller of a control group, see
		// bpf_cgroup_check_dev_permission in kernel/bpf/cgroup.c.
		return "operation not permitted: this program's container has to be allowed the device"
	}
	return errorText(err)
}

// attr returns why an attribute fails, to append to its name.
func (h host) attr(a device.AttrCheck) string {
	isThere := false
	for _, dirs := range a.Dirs {
		for _, dir := range dirs {
			file := dir + "/" + a.Name
			// The reason of a failed check shows the value.
			if !isPublic(h.local(file)) {
				return ": only attributes that everybody may read are read"
			}
			value, err := files.Read(h.local(file), maxValue)
			switch {
			case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
				// The next directory may have the attribute.
				continue
			case errors.Is(err, unix.EACCES):
				return ": permission denied: this program needs read access to the attribute"
			case err != nil:
				return ": " + errorText(err)
			}
			if text := strings.TrimSpace(string(value)); !a.Want.Match(text) {
				return fmt.Sprintf(" is %s: want %s", quote(text), wanted(a.Want))
			}
			isThere = true
			break
		}
	}
	// No directory has the attribute. Only a condition with "!" accepts that.
	if !isThere && !a.Want.Match() {
		return " is absent: want " + wanted(a.Want)
	}
	return ""
}

// isPublic reports whether everybody may read a file. A missing file is reported by the read.
func isPublic(file string) bool {
	info, err := os.Stat(file)
	return err != nil || info.Mode().Perm()&0o004 != 0
}

// quote quotes a value, shortened if it is long.
func quote(value string) string {
	if len(value) <= maxQuoted {
		return fmt.Sprintf("%q", value)
	}
	// The cut may be within a character.
	return fmt.Sprintf("%q...", strings.ToValidUTF8(value[:maxQuoted], ""))
}

// wanted formats the patterns of a condition for a reason.
func wanted(c device.Condition) string {
	var quoted []string
	for _, p := range c.Patterns() {
		quoted = append(quoted, quote(p))
	}
	return strings.Join(quoted, ", ")
}

// dialTCP connects to an address without sending anything, and closes the connection.
func dialTCP(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	// The connection is closed at once, so that keep-alive probes are of no use.
	conn, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// tcpReason returns the same text for each kind of error: the errors of package net contain the
// ephemeral port. A reason that changes with each attempt would be a change of the results each
// time.
func tcpReason(err error) string {
	var name *net.DNSError
	var network net.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &name) && name.IsNotFound:
		return "no such host"
	case errors.As(err, &name):
		return "the name of the host can't be resolved"
	case errors.As(err, &network) && network.Timeout(), errors.Is(err, os.ErrDeadlineExceeded):
		return noAnswer
	}
	return errorText(err)
}

// errorText returns the text of an error without the path. The reason already names the path of
// the host, and the error has the local path.
func errorText(err error) string {
	var errno syscall.Errno
	var file *fs.PathError
	if errors.As(err, &errno) {
		return errno.Error()
	} else if errors.As(err, &file) {
		return file.Err.Error()
	}
	return err.Error()
}
