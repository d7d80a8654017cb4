package inventory

import (
	"testing"
	"testing/synctest"
	"time"
)

// A blocked read is abandoned after the timeout, and the file keeps its previous value;
// another file in its place has none.
func TestSlowAttributes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s slowAttributes
		s.next()
		release := make(chan struct{})
		asked := 0
		blocked := func(string) (string, error) {
			asked++
			<-release
			return "late", nil
		}
		check := func(file string, ino uint64, read func(string) (string, error), want string, wantLate bool, wantErr error, takes time.Duration) {
			t.Helper()
			start := time.Now()
			text, late, err := s.read(file, ino, read)
			if text != want || late != wantLate || err != wantErr || time.Since(start) != takes {
				t.Errorf("%q, late %t, %v after %v; want %q, %t, %v after %v", text, late, err, time.Since(start), want, wantLate, wantErr, takes)
			}
		}
		quick := func(file string) (string, error) { return "quick " + file, nil }
		check("a", 1, blocked, "", true, errSlow, slowAfter)
		check("b", 2, quick, "quick b", false, nil, 0)
		check("a", 1, blocked, "", false, errSlow, 0)
		check("a", 1, quick, "", false, errSlow, 0)
		synctest.Wait()
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		close(release)
		synctest.Wait()
		// A file that always times out requests no further scan.
		late := func(string) (string, error) { time.Sleep(2 * slowAfter); return "late", nil }
		check("a", 1, late, "", false, errSlow, slowAfter)
		time.Sleep(2 * slowAfter)
		check("a", 1, quick, "quick a", false, nil, 0)

		for i := range 3 {
			s.next()
			check("a", 1, late, "quick a", i == 0, nil, slowAfter)
			time.Sleep(2 * slowAfter)
		}
		check("b", 2, late, "", true, errSlow, slowAfter)
		s.next()
		check("a", 3, late, "", false, errSlow, slowAfter)
		time.Sleep(2 * slowAfter)
	})
}
