package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// isJournal reports whether standard error is connected to the journal of systemd, which then sets
// JOURNAL_STREAM to the device and inode of the stream (systemd.exec(5)). Children of the process
// inherit the variable, so that the stream has to be compared.
func isJournal() bool {
	stream := os.Getenv("JOURNAL_STREAM")
	if stream == "" {
		return false
	}
	var stat unix.Stat_t
	err := unix.Fstat(int(os.Stderr.Fd()), &stat)
	return err == nil && stream == fmt.Sprintf("%d:%d", stat.Dev, stat.Ino)
}

// newJournal returns a handler for the journal of systemd. Lines begin with their priority in place
// of the time and the level, which the journal records itself (sd-daemon(3)).
func newJournal(w io.Writer, level slog.Level) slog.Handler {
	return slog.NewTextHandler(priorityWriter{w}, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})
}

// priorityWriter replaces the level that a line begins with by its priority. Each call has one line.
type priorityWriter struct{ w io.Writer }

// priorities are the priorities of syslog by level.
var priorities = map[string]string{
	"ERROR": "<3>",
	"WARN":  "<4>",
	"INFO":  "<6>",
	"DEBUG": "<7>",
}

func (p priorityWriter) Write(line []byte) (int, error) {
	level, rest, _ := strings.Cut(strings.TrimPrefix(string(line), "level="), " ")
	_, err := io.WriteString(p.w, priorities[level]+rest)
	return len(line), err
}
