package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

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

// journal is a handler for the journal of systemd. Lines begin with their priority in place of the
// time and the level, which the journal records itself (sd-daemon(3)).
type journal struct {
	// byPriority has a handler for each priority. All of them have the same attributes.
	byPriority map[string]slog.Handler
}

// The priorities of syslog that correspond to the levels of slog.
const (
	priorityError   = "<3>"
	priorityWarning = "<4>"
	priorityInfo    = "<6>"
	priorityDebug   = "<7>"
)

// newJournal returns a handler that writes to w.
func newJournal(w io.Writer, level slog.Level) journal {
	options := &slog.HandlerOptions{
		Level:       level,
		ReplaceAttr: withoutTimeAndLevel,
	}
	j := journal{byPriority: map[string]slog.Handler{}}
	for _, priority := range []string{priorityError, priorityWarning, priorityInfo, priorityDebug} {
		prefixed := prefixWriter{
			w:      w,
			prefix: priority,
		}
		j.byPriority[priority] = slog.NewTextHandler(prefixed, options)
	}
	return j
}

// withoutTimeAndLevel drops the time and the level of a record.
func withoutTimeAndLevel(groups []string, a slog.Attr) slog.Attr {
	isOfRecord := len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey)
	if isOfRecord {
		return slog.Attr{}
	}
	return a
}

// priorityOf returns the priority of a level.
func priorityOf(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return priorityError
	case level >= slog.LevelWarn:
		return priorityWarning
	case level >= slog.LevelInfo:
		return priorityInfo
	}
	return priorityDebug
}

// Enabled implements slog.Handler.
func (j journal) Enabled(ctx context.Context, level slog.Level) bool {
	return j.byPriority[priorityOf(level)].Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (j journal) Handle(ctx context.Context, r slog.Record) error {
	return j.byPriority[priorityOf(r.Level)].Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (j journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return j.each(func(h slog.Handler) slog.Handler {
		return h.WithAttrs(attrs)
	})
}

// WithGroup implements slog.Handler.
func (j journal) WithGroup(name string) slog.Handler {
	return j.each(func(h slog.Handler) slog.Handler {
		return h.WithGroup(name)
	})
}

// each returns a journal with other handlers.
func (j journal) each(derive func(slog.Handler) slog.Handler) journal {
	next := journal{byPriority: map[string]slog.Handler{}}
	for priority, h := range j.byPriority {
		next.byPriority[priority] = derive(h)
	}
	return next
}

// prefixWriter writes a prefix before each line. Each call has one line.
type prefixWriter struct {
	w      io.Writer
	prefix string
}

func (p prefixWriter) Write(line []byte) (int, error) {
	_, err := p.w.Write(append([]byte(p.prefix), line...))
	return len(line), err
}
