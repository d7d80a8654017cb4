package inventory

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/generic-dp/generic-dp/internal/host/sysfs"
)

// A blocked read is abandoned after the timeout, and the file keeps its previous value;
// another file in its place has none. A read that ends too late requests a scan, but not
// again if the next one is late too.
func TestSlowAttributes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := slowAttributes{answers: make(chan struct{}, 1)}
		s.calls.Late = s.tooLate
		s.next()
		release := make(chan struct{})
		asked := 0
		blocked := func(string) (string, error) {
			asked++
			<-release
			return "at last", nil
		}
		check := func(file string, ino uint64, read func(string) (string, error), want string, wantErr error, takes time.Duration) {
			t.Helper()
			start := time.Now()
			text, err := s.read(sysfs.File{Path: file, Ino: ino}, read)
			if text != want || err != wantErr || time.Since(start) != takes {
				t.Errorf("%q, %v after %v; want %q, %v after %v", text, err, time.Since(start), want, wantErr, takes)
			}
		}
		answers := func(want int) {
			t.Helper()
			time.Sleep(4 * slowAfter)
			if n := len(s.answers); n != want {
				t.Errorf("%d scans requested; want %d", n, want)
			}
			for range len(s.answers) {
				<-s.answers
			}
		}
		quick := func(file string) (string, error) { return "quick " + file, nil }
		check("a", 1, blocked, "", errSlow, slowAfter)
		check("b", 2, quick, "quick b", nil, 0)
		check("a", 1, blocked, "", errSlow, 0)
		s.next()
		check("a", 1, quick, "", errSlow, 0)
		answers(0)
		synctest.Wait()
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		close(release)
		answers(1)

		late := func(string) (string, error) { time.Sleep(2 * slowAfter); return "late", nil }
		s.next()
		check("a", 1, late, "at last", nil, slowAfter)
		answers(0)
		s.next()
		check("a", 1, quick, "quick a", nil, 0)
		for i := range 3 {
			s.next()
			check("a", 1, late, []string{"quick a", "late", "late"}[i], nil, slowAfter)
			answers([]int{1, 0, 0}[i])
		}
		s.next()
		check("a", 3, late, "", errSlow, slowAfter)
		answers(1)
		failed := errors.New("failed")
		check("c", 4, func(string) (string, error) { time.Sleep(2 * slowAfter); return "", failed }, "", errSlow, slowAfter)
		answers(1)
		s.next()
		check("c", 4, late, "", failed, slowAfter)
		answers(0)
	})
}

// Intervals may begin between the end of a late read and its report. The report is no value.
func TestIntervalBeginsAfterALateRead(t *testing.T) {
	t.Parallel()
	for intervals := 1; intervals <= 2; intervals++ {
		synctest.Test(t, func(t *testing.T) {
			s := slowAttributes{answers: make(chan struct{}, 1)}
			s.calls.Late = func(file sysfs.File) {
				for range intervals {
					s.next()
				}
				s.tooLate(file)
			}
			file := sysfs.File{Path: "a", Ino: 1}
			late := func(string) (string, error) {
				time.Sleep(2 * slowAfter)
				return "text", nil
			}
			s.next()
			if _, err := s.read(file, late); err != errSlow {
				t.Fatalf("the first read: %v", err)
			}
			time.Sleep(4 * slowAfter)
			if len(s.answers) != 1 {
				t.Error("no scan is requested")
			}
			s.next()
			text, err := s.read(file, late)
			if text != "" || err != errSlow {
				t.Errorf("%q, %v: want that it is unread", text, err)
			}
			time.Sleep(4 * slowAfter) // until the read ends
		})
	}
}

// Reads that block delay a scan by a second, whatever their number, and a read that does not block
// has its value.
func TestManySlowAttributes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s slowAttributes
		s.calls.Limit = maxBlocked
		s.next()
		release := make(chan struct{})
		blocked := func(string) (string, error) {
			<-release
			return "", nil
		}
		quick := func(string) (string, error) { return "quick", nil }
		start := time.Now()
		for i := range uint64(200) {
			_, _ = s.read(sysfs.File{Path: "blocked", Ino: i}, blocked)
			text, err := s.read(sysfs.File{Path: "quick", Ino: i}, quick)
			if text != "quick" || err != nil {
				t.Fatalf("read %d: %q, %v", i, text, err)
			}
		}
		for i := range uint64(10_000) {
			_, _ = s.read(sysfs.File{Path: "blocked", Ino: i}, blocked)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("10,000 blocked reads took %v, want a second at most", took)
		}
		close(release)
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
