//go:build unix

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// isTerminal reports whether a file is a terminal. The call fails with ENOTTY for files and pipes.
func isTerminal(file *os.File) bool {
	_, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	return err == nil
}
