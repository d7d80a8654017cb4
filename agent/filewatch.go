package agent

import (
	"log/slog"
	"time"

	"github.com/generic-dp/generic-dp/internal/watch"
)

// newFileWatch watches files that people and programs edit: the configuration, the CDI
// specs of others. They are written in place, renamed into place, or are links that are
// swapped, so what is watched are the directories that a path leads through. Whoever
// writes several files, or removes one and makes it anew, is done when nothing happens
// for a moment.
func newFileWatch(source string, dirs func() []string, log *slog.Logger) *watch.Watcher {
	return watch.New(watch.Options{
		Source: source, Events: watch.Names | watch.Attributes | watch.Writes, Dirs: dirs,
		Quiet: 100 * time.Millisecond, Resync: 10 * time.Minute, Poll: time.Minute, Log: log,
	})
}

// poke puts a value into a channel that holds one, unless one is there.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
