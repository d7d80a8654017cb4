package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

// A repeated failure is reported once: a report starts a pass, which saves again.
func TestSaverTellsWhatChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newSaver()
		s.first = func() {}
		go s.run(ctx)
		for i, want := range []string{"full", "", "", "read-only", "<nil>", ""} {
			s.save(func() saved {
				return saved{config: []error{errors.New("full"), errors.New("full"), errors.New("full"), errors.New("read-only"), nil, nil}[i]}
			})
			synctest.Wait()
			told := ""
			select {
			case <-s.newResult:
				told = fmt.Sprint(s.last.Load().config)
			default:
			}
			if told != want {
				t.Errorf("save %d: told %q, want %q", i, told, want)
			}
		}
		cancel()
	})
}
