package agent

import (
	"context"
	"fmt"
	"path/filepath"
)

// Once makes the CDI specs of what is there, as Run does for Options.CDIOnly,
// and ends when nothing is about to change by itself. It returns the qualified
// names that a container can ask for.
func (a *Agent) Once(ctx context.Context) (names []string, err error) {
	mine, err := a.lock.try()
	if err != nil {
		return nil, err
	}
	if !mine {
		return nil, fmt.Errorf("an instance is serving: it holds %s", filepath.Join(a.options.Paths.RunDir, lockName))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-a.settled:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := a.Run(ctx); err != nil {
		return nil, err
	}
	made := a.injector.names.Load()
	if made == nil {
		return nil, errNotScanned
	}
	return made.names, made.err
}
