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
)

// kernelEvents are the relevant uevents. next returns the path of the device relative
// to the root of sysfs, or errLost, after which it continues.
type kernelEvents interface {
	next() (devpath string, err error)
	Close() error
}

// errLost means that the kernel dropped events, since they came faster than they were
// read.
var errLost = errors.New("events were lost")

const (
	// ueventBuffer has room for more than one event: the kernel's own limit is 2 KiB
	// (UEVENT_BUFFER_SIZE in include/linux/kobject.h).
	ueventBuffer = 16 << 10
	// ueventQueue is the requested queue of the socket, limited by net.core.rmem_max.
	// The default is full after some 250 events.
	ueventQueue = 4 << 20
	// kernelGroup is the multicast group of the kernel; group 2 is udev's.
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

func openUevents() (*uevents, error) {
	if users, err := os.ReadFile("/proc/self/uid_map"); err == nil && ownUsers(string(users)) {
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
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
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

// ownUsers reports whether a uid_map is that of a user namespace other than the initial
// one, which maps all users to themselves (user_namespaces(7)).
func ownUsers(uidMap string) bool {
	return !slices.Equal(strings.Fields(uidMap), []string{"0", "0", "4294967295"})
}

func (s *uevents) Close() error { return s.file.Close() }

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
		u, ok := parseUevent(s.buf[:size])
		switch {
		case flags&unix.MSG_TRUNC != 0:
			return "", errLost
		case !ok || !u.matters():
		case u.action == "move" && u.subsystem != "net":
			// Everything below it has moved along, and its old path is announced
			// nowhere. It is rare: a serial port of Bluetooth that connects
			// (net/bluetooth/rfcomm/tty.c). Interfaces are often renamed, but not
			// cached.
			return "", errLost
		default:
			return strings.Clone(u.devpath[1:]), nil
		}
	}
}

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

// isKernel reports whether a message came from the kernel: any process with CAP_NET_ADMIN
// may send to the group. The kernel fills in the sender's port, and 0 is its own: no
// process can have it, in any namespace (netlink_autobind and netlink_insert in
// net/netlink/af_netlink.c).
func isKernel(from unix.Sockaddr) bool {
	nl, ok := from.(*unix.SockaddrNetlink)
	return ok && nl.Pid == 0
}

// uevent is one event of the kernel.
type uevent struct {
	action    string // "add", "remove", "change", "move", "bind", "unbind", …
	devpath   string // path below the root of sysfs, with a leading slash
	subsystem string
}

// parseUevent parses an event of the kernel: "add@/devices/…", then KEY=VALUE, each
// terminated by a NUL, of which SEQNUM is the last that is always present
// (kobject_uevent_env in lib/kobject_uevent.c). It reports false for others, such as
// messages of udev and truncated ones.
func parseUevent(msg []byte) (uevent, bool) {
	head, rest, ok := bytes.Cut(msg, []byte{0})
	if !ok || msg[len(msg)-1] != 0 {
		return uevent{}, false
	}
	action, devpath, ok := bytes.Cut(head, []byte{'@'})
	if !ok || len(action) == 0 || len(devpath) < 2 || devpath[0] != '/' {
		return uevent{}, false
	}
	u := uevent{action: string(action), devpath: string(devpath)}
	numbered := false
	for len(rest) > 0 {
		var field []byte
		field, rest, _ = bytes.Cut(rest, []byte{0})
		key, value, _ := strings.Cut(string(field), "=")
		switch key {
		case "ACTION":
			ok = ok && value == u.action
		case "DEVPATH":
			ok = ok && value == u.devpath
		case "SUBSYSTEM":
			u.subsystem = value
		case "SEQNUM":
			numbered = isDigits(value)
		}
	}
	// Other values are arbitrary strings of a device.
	if !ok || !numbered || !utf8.ValidString(u.action+u.devpath+u.subsystem) {
		return uevent{}, false
	}
	return u, true
}

// matters reports whether an event can change a snapshot. A snapshot contains only
// devices, which are below /devices; modules, drivers, file systems and, on older
// kernels, the caches of every new container (/kernel/slab) are not. Events of these
// subsystems are ignored, since they have neither nodes nor drivers and are frequent:
// "bdi" with every mount, "queues" several times with every network interface, and a
// battery reports its charge each minute.
func (u uevent) matters() bool {
	if !strings.HasPrefix(u.devpath, "/devices/") {
		return false
	}
	switch u.subsystem {
	case "bdi", "queues", "power_supply":
		return false
	}
	return true
}
