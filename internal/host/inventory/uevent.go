package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
)

// kernelEvents are the relevant uevents. next returns the path of the device relative
// to the root of sysfs, or errLost. It can be called again after errLost.
type kernelEvents interface {
	next() (devpath string, err error)
	Close() error
}

// errLost means that events are missing, usually because the kernel dropped them: they came faster
// than they were read.
var errLost = errors.New("events were lost")

const (
	// ueventBuffer has room for any event: the kernel's own limit is 2 KiB
	// (UEVENT_BUFFER_SIZE in include/linux/kobject.h).
	ueventBuffer = 16 << 10
	// ueventQueue is the requested queue of the socket, limited by net.core.rmem_max.
	// The default is full after some 250 events.
	ueventQueue = 4 << 20
	// kernelGroup is the multicast group of the kernel. udev sends to group 2.
	kernelGroup = 1
)

// uevents is a socket of NETLINK_KOBJECT_UEVENT. It needs no capability, and works in
// another network namespace, but not in another user namespace: the kernel sends to the
// namespaces that belong to the initial user namespace (uevent_net_broadcast in
// lib/kobject_uevent.c).
type uevents struct {
	file *os.File
	conn syscall.RawConn
	buf  [ueventBuffer]byte
}

// openUevents opens the socket. It fails in a user namespace other than the initial one.
func openUevents() (*uevents, error) {
	// There, the socket would open without an error and stay silent.
	users, err := os.ReadFile("/proc/self/uid_map")
	if err == nil && !isInitialUserNamespace(string(users)) {
		return nil, errors.New("the kernel sends no events to this user namespace")
	}
	fd, err := unix.Socket(
		unix.AF_NETLINK,
		unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.NETLINK_KOBJECT_UEVENT,
	)
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	// A smaller queue still works.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, ueventQueue)
	address := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}
	if err := unix.Bind(fd, address); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind a netlink socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "uevents")
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("poll a netlink socket: %w", err)
	}
	return &uevents{file: file, conn: conn}, nil
}

// isInitialUserNamespace reports whether a uid_map belongs to the initial user namespace, which
// maps all users to themselves (user_namespaces(7)).
func isInitialUserNamespace(uidMap string) bool {
	return slices.Equal(strings.Fields(uidMap), []string{"0", "0", "4294967295"})
}

// Close also ends a call of next that waits.
func (s *uevents) Close() error { return s.file.Close() }

// next waits for the next relevant event. Only one goroutine may call it.
func (s *uevents) next() (string, error) {
	for {
		size, flags, from, err := s.receive()
		if errors.Is(err, unix.ENOBUFS) {
			return "", errLost
		}
		if err != nil {
			return "", fmt.Errorf("read a netlink socket: %w", err)
		}
		if !isKernel(from) {
			continue
		}
		// A longer event cannot be parsed, and may be about anything.
		if flags&unix.MSG_TRUNC != 0 {
			return "", errLost
		}
		u, isValid := parseUevent(s.buf[:size])
		if !isValid || !u.isRelevant() {
			continue
		}
		return strings.Clone(u.devpath[1:]), nil
	}
}

// receive waits for a message and reads it into buf. The Go runtime polls the socket, so that no
// thread is blocked.
func (s *uevents) receive() (size, flags int, from unix.Sockaddr, err error) {
	pollErr := s.conn.Read(func(fd uintptr) bool {
		for {
			size, _, flags, from, err = unix.Recvmsg(int(fd), s.buf[:], nil, 0)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	return size, flags, from, errors.Join(pollErr, err)
}

// isKernel reports whether a message came from the kernel, because any process with CAP_NET_ADMIN
// may send to the group. The kernel fills in the port of the sender. Its own port is 0, which no
// process can have in any namespace (netlink_autobind and netlink_insert in
// net/netlink/af_netlink.c).
func isKernel(from unix.Sockaddr) bool {
	sender, isNetlink := from.(*unix.SockaddrNetlink)
	return isNetlink && sender.Pid == 0
}

// uevent is one event of the kernel.
type uevent struct {
	action    string // "add", "remove", "change", "move", "bind", "unbind", …
	devpath   string // path below the root of sysfs, with a leading slash
	subsystem string
}

// parseUevent parses an event of the kernel: "add@/devices/…", then KEY=VALUE, each terminated by a
// NUL. The last key that is always present is SEQNUM (kobject_uevent_env in lib/kobject_uevent.c).
// It returns false for other messages, such as truncated events and messages of udev.
func parseUevent(msg []byte) (uevent, bool) {
	head, fields, isTerminated := bytes.Cut(msg, []byte{0})
	if !isTerminated || msg[len(msg)-1] != 0 {
		return uevent{}, false
	}
	action, devpath, _ := strings.Cut(string(head), "@")
	isPath := strings.HasPrefix(devpath, "/") && devpath != "/"
	if action == "" || !isPath {
		return uevent{}, false
	}
	u := uevent{action: action, devpath: devpath}
	isComplete := u.parseFields(fields)
	// Other values are arbitrary strings of a device.
	isText := utf8.ValidString(u.action + u.devpath + u.subsystem)
	if !isComplete || !isText {
		return uevent{}, false
	}
	return u, true
}

// parseFields parses the fields after the head. It returns false if they contradict the head or
// have no SEQNUM.
func (u *uevent) parseFields(fields []byte) bool {
	isConsistent := true
	isNumbered := false
	for len(fields) > 0 {
		var field []byte
		field, fields, _ = bytes.Cut(fields, []byte{0})
		key, value, _ := strings.Cut(string(field), "=")
		switch key {
		case "ACTION":
			isConsistent = isConsistent && value == u.action
		case "DEVPATH":
			isConsistent = isConsistent && value == u.devpath
		case "SUBSYSTEM":
			u.subsystem = value
		case "SEQNUM":
			isNumbered = device.IsDigits(value)
		}
	}
	return isConsistent && isNumbered
}

// isRelevant reports whether an event can change a snapshot, or a when.exists below /sys/module. A snapshot
// only contains devices, which are below /devices, unlike drivers, file systems and, on older kernels, the
// caches of every new container (/kernel/slab). Some subsystems have neither nodes nor drivers, but
// frequent events: "bdi" with every mount, "queues" several times with every network interface, and
// "power_supply" each minute for the charge of a battery.
func (u uevent) isRelevant() bool {
	// Modules are loaded and removed rarely (do_init_module in kernel/module/main.c).
	if u.subsystem == "module" {
		return true
	}
	if !strings.HasPrefix(u.devpath, "/devices/") {
		return false
	}
	switch u.subsystem {
	case "bdi", "queues", "power_supply":
		return false
	}
	return true
}
