// Package health checks devices beyond their presence: whether a node can be
// opened, an attribute is what it has to be, an address takes connections.
//
// A check may hang for as long as a driver or a network wants. So each runs in
// a goroutine of its own, and what has not answered in time fails until it
// does: nothing else waits for it, and it is not started a second time.
package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Check is what is looked at of one device. All of it must hold.
type Check struct {
	// Open lists nodes that can be opened, by their paths on the host.
	Open  []string
	Attrs []Attr
	// TCP is an address that takes connections, HOST:PORT; empty is none.
	TCP string
	// Interval is the time between two checks.
	Interval time.Duration
}

// Attr is an attribute and what it has to be.
type Attr struct {
	// Name is a path relative to a directory of the host's sysfs.
	Name string
	// Dirs are the directories where it may be, as paths on the host: one
	// list a node, nearest first. The first that has it decides, and what is
	// found for each of the nodes has to fit.
	Dirs [][]string
	Want Condition
}

// Condition is what a value has to be.
type Condition interface {
	// Match reports whether a value fits; no value is an absent attribute.
	Match(have ...string) bool
	// Patterns is the condition as it was written.
	Patterns() []string
}

// noAnswer is why a check failed that takes too long.
const noAnswer = "does not answer"

const (
	// longestValue is how many bytes of an attribute a reason repeats.
	longestValue = 80
	// dialTimeout ends before a check has to answer, so that it can say
	// whether it is the host or its name that doesn't.
	dialTimeout = timeout - time.Second
)

// host is how a check reaches what it looks at.
type host struct {
	local func(path string) string
	open  func(path string) error
	dial  func(ctx context.Context, address string) error
}

func newHost(local func(string) string) host {
	return host{local: local, open: openNode, dial: dialTCP}
}

// attempt is one run of a check.
type attempt struct {
	of    *probe // what it is for
	began time.Time
	at    atomic.Pointer[string] // what it looks at
}

func (a *attempt) looksAt(what string) { a.at.Store(&what) }

// stuck is the reason while the attempt does not come to its end.
func (a *attempt) stuck() string {
	if at := a.at.Load(); at != nil {
		return *at + ": " + noAnswer
	}
	return noAnswer
}

// run returns the first reason why a check fails; empty is that it passes.
func (h host) run(ctx context.Context, c Check, a *attempt) string {
	for _, node := range c.Open {
		what := "open " + node
		a.looksAt(what)
		if reason := openReason(h.open(h.local(node))); reason != "" {
			return what + ": " + reason
		}
	}
	for _, attr := range c.Attrs {
		what := "attr " + attr.Name
		a.looksAt(what)
		if reason := h.attr(attr); reason != "" {
			return what + reason
		}
	}
	if c.TCP == "" {
		return ""
	}
	what := "tcp " + c.TCP
	a.looksAt(what)
	if reason := tcpReason(h.dial(ctx, c.TCP)); reason != "" {
		return what + ": " + reason
	}
	return ""
}

// openNode opens a node and closes it: without waiting for a carrier or a
// writer, without getting a terminal, without following a link that took the
// place of the node.
func openNode(path string) error {
	fd, err := openFile(path, unix.O_NOFOLLOW)
	if err == nil {
		unix.Close(fd) // even if it fails, the descriptor is gone
	}
	return err
}

func openFile(path string, flags int) (fd int, err error) {
	for {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC|flags, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// openReason is why a node that was opened with this error is not in order. A
// busy one is: a container has it to itself, which is what it is for.
func openReason(err error) string {
	switch {
	case err == nil || errors.Is(err, unix.EBUSY):
		return ""
	case errors.Is(err, unix.EACCES):
		return "permission denied: this program needs read access to the node"
	case errors.Is(err, unix.EPERM):
		// Of the device controller of a control group, see
		// bpf_cgroup_check_dev_permission in kernel/bpf/cgroup.c.
		return "operation not permitted: this program's container has to be allowed the device"
	}
	return errorText(err)
}

// attr returns what is wrong with an attribute, to follow its name.
func (h host) attr(a Attr) string {
	found := false
	seen := map[string]bool{}
	for _, dirs := range a.Dirs {
		for _, dir := range dirs {
			file := dir + "/" + a.Name
			if seen[file] {
				break
			}
			value, err := readAttr(h.local(file))
			if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) {
				continue
			}
			if errors.Is(err, unix.EACCES) {
				return ": permission denied: this program needs read access to the attribute"
			}
			if err != nil {
				return ": " + errorText(err)
			}
			if found = true; !a.Want.Match(value) {
				return fmt.Sprintf(" is %s: want %s", quote(value), wanted(a.Want))
			}
			seen[file] = true
			break
		}
	}
	if !found && !a.Want.Match() {
		return " is absent: want " + wanted(a.Want)
	}
	return ""
}

// readAttr reads an attribute without the space around it. One read is enough:
// the kernel formats it as a whole, into at most a page
// (Documentation/filesystems/sysfs.rst).
func readAttr(path string) (string, error) {
	fd, err := openFile(path, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(fd, buf)
		if err == unix.EINTR {
			continue
		}
		return strings.TrimSpace(string(buf[:max(n, 0)])), err
	}
}

// quote writes a value in quotes, shortened where it is long.
func quote(value string) string {
	if len(value) <= longestValue {
		return fmt.Sprintf("%q", value)
	}
	return fmt.Sprintf("%q...", strings.ToValidUTF8(value[:longestValue], ""))
}

func wanted(c Condition) string {
	var quoted []string
	for _, p := range c.Patterns() {
		quoted = append(quoted, quote(p))
	}
	return strings.Join(quoted, ", ")
}

func dialTCP(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{KeepAlive: -1}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// tcpReason is constant for each kind of error: what package net says has the
// number of the own port in it.
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

// errorText is the kernel's part of an error.
func errorText(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}
