package inventory

import (
	"strings"
	"testing"
)

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
