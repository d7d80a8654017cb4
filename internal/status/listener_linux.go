package status

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// limitSockets limits what the connections of a listener take. They inherit its buffers, which are full
// before a connection is accepted. The kernel holds back a connection until its client has sent something, for
// at most a second, see TCP_DEFER_ACCEPT in tcp(7). Without it, connections without a request are accepted as
// fast as probes.
func limitSockets(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) {
		// If a call fails, connections only cost more time or memory.
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, maxRequest)
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT, 1)
	})
}
