package inventory

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// kernelEvents are the events of the kernel that could matter. next returns
// the path of the device relative to the root of sysfs, or errLost, after
// which it goes on.
type kernelEvents interface {
	next() (devpath string, err error)
	Close() error
}

// errLost says that the kernel dropped events, since they came faster than
// they were read.
var errLost = errors.New("events were lost")

const (
	// ueventBuffer holds one event with room to spare: the kernel's own
	// limit is 2 KiB (UEVENT_BUFFER_SIZE in include/linux/kobject.h).
	ueventBuffer = 16 << 10
	// ueventQueue is asked for as the socket's queue; the kernel gives as
	// much of it as net.core.rmem_max allows. What it has by default is full
	// after some 250 events.
	ueventQueue = 4 << 20
	// kernelGroup is the multicast group on which the kernel speaks; group 2
	// is udev's.
	kernelGroup = 1
)

// uevents is a socket of NETLINK_KOBJECT_UEVENT. It needs no capability, and
// works in a network namespace of its own, but not in a user namespace of its
// own: the kernel speaks to the namespaces that belong to the initial user
// namespace (uevent_net_broadcast in lib/kobject_uevent.c).
type uevents struct {
	file *os.File
	conn syscall.RawConn
	buf  [ueventBuffer]byte
}

func openUevents() (*uevents, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("opening a netlink socket: %w", err)
	}
	// A smaller queue still works.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, ueventQueue)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("binding a netlink socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), "uevents")
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("polling a netlink socket: %w", err)
	}
	return &uevents{file: file, conn: conn}, nil
}

func (s *uevents) Close() error { return s.file.Close() }

func (s *uevents) next() (string, error) {
	for {
		n, flags, from, err := s.receive()
		if errors.Is(err, unix.ENOBUFS) || err == nil && flags&unix.MSG_TRUNC != 0 {
			return "", errLost
		}
		if err != nil {
			return "", fmt.Errorf("reading a netlink socket: %w", err)
		}
		// Any process that has CAP_NET_ADMIN may send to the group. The
		// kernel fills in the sender's port, and 0 is its own: nobody else
		// can have it (netlink_autobind and netlink_insert in
		// net/netlink/af_netlink.c).
		if nl, ok := from.(*unix.SockaddrNetlink); !ok || nl.Pid != 0 {
			continue
		}
		if u, ok := parseUevent(s.buf[:n]); ok && u.matters() {
			return strings.Clone(u.devpath[1:]), nil
		}
	}
}

func (s *uevents) receive() (n, flags int, from unix.Sockaddr, err error) {
	pollErr := s.conn.Read(func(fd uintptr) bool {
		for {
			n, _, flags, from, err = unix.Recvmsg(int(fd), s.buf[:], nil, 0)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	return n, flags, from, errors.Join(pollErr, err)
}

// uevent is one event of the kernel.
type uevent struct {
	action    string // "add", "remove", "change", "move", "bind", "unbind", …
	devpath   string // path below the root of sysfs, with a slash in front
	subsystem string
}

// parseUevent reads an event as the kernel writes it: "add@/devices/…", then
// KEY=VALUE, each ended by a NUL (kobject_uevent_env in
// lib/kobject_uevent.c). It reports false for everything else, such as what
// udev sends.
func parseUevent(msg []byte) (uevent, bool) {
	head, rest, ok := bytes.Cut(msg, []byte{0})
	if !ok {
		return uevent{}, false
	}
	action, devpath, ok := bytes.Cut(head, []byte{'@'})
	if !ok || len(action) == 0 || len(devpath) < 2 || devpath[0] != '/' {
		return uevent{}, false
	}
	u := uevent{action: string(action), devpath: string(devpath)}
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
		}
	}
	if !ok {
		return uevent{}, false
	}
	return u, true
}

// matters reports whether an event can change a snapshot. All that a snapshot
// shows is a device, and all devices are below /devices; modules, drivers,
// file systems and, on older kernels, the caches of every new container
// (/kernel/slab) are not. Of the devices these subsystems are left out, since
// they have neither nodes nor drivers and are loud: "bdi" comes with every
// mount, "queues" several times with every network interface, and a battery
// tells its charge each minute.
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
