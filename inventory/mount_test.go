package inventory

import (
	"strings"
	"testing"
	"unicode"
)

// What a recording keeps of a mount is read as the same mount, and what is
// said of it is one safe line.
func FuzzParseMount(f *testing.F) {
	f.Add(`36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue`)
	f.Add(`37 35 8:1 / /var\040x\134y\012 rw - btrfs /dev/sda\0401 rw`)
	f.Add(`1 2 8:1 / /a\999\0 rw - - -`)
	f.Fuzz(func(t *testing.T, line string) {
		m, ok := parseMount(line)
		if !ok {
			return
		}
		again, ok := parseMount(m.line)
		if again.line, m.line = "", ""; !ok || again != m {
			t.Errorf("%q is %+v, and kept as %+v, %v", line, m, again, ok)
		}
		if strings.ContainsFunc(m.point+m.source, unicode.IsControl) {
			t.Errorf("%q: %+v has control characters", line, m)
		}
	})
}

func TestDefaultRoutes(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("0", 32)
	for _, c := range []struct {
		of   func(string) string
		line string
		want string
	}{
		{defaultIPv4, "eth0\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0", "eth0"},
		{defaultIPv4, "eth0\t0002A8C0\t00000000\t0001\t0\t0\t100\t00FFFFFF\t0\t0\t0", ""},
		{defaultIPv4, "eth0\t00000000\t0102A8C0\t0001\t0\t0\t100\t00000080\t0\t0\t0", ""}, // 0.0.0.0/1
		{defaultIPv4, "*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0", ""},
		{defaultIPv4, "eth0\t00000000\t0102A8C0\t0002\t0\t0\t100\t00000000\t0\t0\t0", ""}, // not up
		{defaultIPv4, "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT", ""},
		{defaultIPv4, "", ""},
		{defaultIPv6, zeros + " 00 " + zeros + " 00 fe80000000000000021122fffe334455 00000400 00000002 00000000 00450003     eth0", "eth0"},
		{defaultIPv6, zeros + " 00 " + zeros + " 00 " + zeros + " ffffffff 00000001 00000000 00200200       lo", ""},
		{defaultIPv6, "fe80" + zeros[4:] + " 40 " + zeros + " 00 " + zeros + " 00000100 00000001 00000000 00000001     eth0", ""},
		{defaultIPv6, "", ""},
	} {
		if got := c.of(c.line); got != c.want {
			t.Errorf("%q leads through %q; want %q", c.line, got, c.want)
		}
	}
}
