package inventory

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A file that blocks is given up after the time, is not asked a second time
// while it blocks, and keeps no other waiting.
func TestSlowAttributes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s slowAttributes
		release := make(chan struct{})
		asked := 0
		blocked := func(string) (string, error) {
			asked++
			<-release
			return "late", nil
		}
		check := func(file string, read func(string) (string, error), want string, wantErr error, takes time.Duration) {
			t.Helper()
			start := time.Now()
			value, err := s.read(file, read)
			if value != want || !errors.Is(err, wantErr) || time.Since(start) != takes {
				t.Errorf("%q, %v after %v; want %q, %v after %v", value, err, time.Since(start), want, wantErr, takes)
			}
		}
		quick := func(file string) (string, error) { return "quick " + file, nil }
		check("a", blocked, "", errSlow, slowAfter)
		check("b", quick, "quick b", nil, 0)
		check("a", blocked, "", errSilent, 0)
		check("a", quick, "", errSilent, 0)
		synctest.Wait()
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		close(release)
		synctest.Wait()
		// One that never answers in time is not looked at again and again.
		late := func(string) (string, error) { time.Sleep(2 * slowAfter); return "late", nil }
		check("a", late, "", errSilent, slowAfter)
		time.Sleep(2 * slowAfter)
		check("a", quick, "quick a", nil, 0)
		check("a", late, "", errSlow, slowAfter)
		time.Sleep(2 * slowAfter)
	})
}
