//go:build unix

package pattern

import "syscall"

// onlyDirectory makes open(2) fail for everything but a directory.
const onlyDirectory = syscall.O_DIRECTORY
