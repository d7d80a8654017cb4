//go:build !linux

package status

import "syscall"

// deferAccept has no option here. Only the types of the status are used on other systems.
func deferAccept(_, _ string, _ syscall.RawConn) error { return nil }
