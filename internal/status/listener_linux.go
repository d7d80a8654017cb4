package status

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// deferAccept makes the kernel hold back a connection until its client has sent something, for at
// most a second, see TCP_DEFER_ACCEPT in tcp(7). Without it, connections without a request are
// accepted as fast as probes.
func deferAccept(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		// If it fails, idle connections are accepted as well, which only costs time.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 1)
	})
}
