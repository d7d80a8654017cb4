package inventory

import (
	"strings"
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

func TestRoutes(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("0", 32)
	for _, c := range []struct {
		of   func([]string) string
		line string
		want string
	}{
		{routeIPv4, "eth0\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0", "eth0"},
		{routeIPv4, "eth0\t0002A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0", "eth0"},
		{routeIPv4, "eth0\t00000000\t0102A8C0\t0001\t0\t0\t100\t00000080\t0\t0\t0", "eth0"}, // 0.0.0.0/1
		{routeIPv4, "*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0", ""},
		{routeIPv4, "eth0\t00000000\t0102A8C0\t0002\t0\t0\t100\t00000000\t0\t0\t0", ""}, // not up
		{routeIPv4, "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT", ""},
		{routeIPv4, "", ""},
		{routeIPv6, zeros + " 00 " + zeros + " 00 fe80000000000000021122fffe334455 00000400 00000002 00000000 00450003     eth0", "eth0"},
		{routeIPv6, zeros + " 00 " + zeros + " 00 " + zeros + " ffffffff 00000001 00000000 00200200       lo", ""},
		{routeIPv6, "fe80" + zeros[4:] + " 40 " + zeros + " 00 " + zeros + " 00000100 00000001 00000000 00000001     eth0", ""},
		{routeIPv6, "ff00" + zeros[4:] + " 08 " + zeros + " 00 " + zeros + " 00000100 00000003 00000000 00000001     eth0", ""},
		{routeIPv6, "20010db8" + zeros[8:] + " 40 " + zeros + " 00 " + zeros + " 00000100 00000001 00000000 00000001     eth0", "eth0"},
		{routeIPv6, "", ""},
	} {
		if got := c.of(strings.Fields(c.line)); got != c.want {
			t.Errorf("%q leads through %q; want %q", c.line, got, c.want)
		}
	}
}
