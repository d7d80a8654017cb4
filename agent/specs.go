package agent

import (
	"context"

	"github.com/generic-dp/generic-dp/matchers"
)

// specDirs are the directories of the CDI specs that the configuration speaks
// of: none where it speaks of none.
func (a *Agent) specDirs() []string {
	if !a.usesSpecs.Load() {
		return nil
	}
	return a.options.Paths.specDirs()
}

// watchSpecs follows the host's CDI specs while the configuration speaks of them.
// They are edited in place, too, of which the watch of /dev tells nothing.
func (l *loop) watchSpecs(ctx context.Context) {
	uses := matchers.UsesCDIDevices(l.config)
	if uses == l.usesSpecs.Load() {
		return
	}
	l.usesSpecs.Store(uses)
	if uses && !l.watchesSpecs {
		l.watchesSpecs = true
		l.group.Go(func() error {
			l.specFiles.run(ctx)
			return nil
		})
	}
	l.specFiles.redir()
}
