package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// names records when names appeared in a directory.
type names struct {
	file *os.File
	mu   sync.Mutex
	at   map[string]time.Time
}

// watchNames watches a directory for as long as the machine runs.
func watchNames(dir string) (*names, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_CREATE); err != nil {
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	n := &names{file: os.NewFile(uintptr(fd), dir), at: map[string]time.Time{}}
	go n.read()
	return n, nil
}

func (n *names) read() {
	buf := make([]byte, 64<<10)
	for {
		size, err := n.file.Read(buf)
		if err != nil {
			return
		}
		now := time.Now()
		n.mu.Lock()
		for b := buf[:size]; len(b) >= unix.SizeofInotifyEvent; {
			end := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(b[12:]))
			n.at[string(bytes.TrimRight(b[unix.SizeofInotifyEvent:end], "\x00"))] = now
			b = b[end:]
		}
		n.mu.Unlock()
	}
}

// take returns the time of a name's last appearance, once.
func (n *names) take(name string) (time.Time, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	at, ok := n.at[name]
	if !ok {
		return at, fmt.Errorf("%s has not appeared in %s", name, n.file.Name())
	}
	delete(n.at, name)
	return at, nil
}
