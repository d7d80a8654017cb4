package health

import (
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
)

// One interface of a network function with a carrier is enough. Ports of virtual functions in the
// switch of the card do not count.
func TestLink(t *testing.T) {
	t.Parallel()
	dir := write(t, map[string]string{
		"sys/net/up/carrier":                 "1\n",
		"sys/net/unplugged/carrier":          "0\n",
		"sys/net/uplink/carrier":             "1\n",
		"sys/net/uplink/phys_port_name":      "p0\n",
		"sys/net/representor/carrier":        "1\n",
		"sys/net/representor/phys_port_name": "pf0vf3\n",
	})
	for _, tc := range []struct {
		dirs []string
		want string
	}{
		{[]string{"/sys/net/up"}, ""},
		{[]string{"/sys/net/unplugged"}, "link of x: no carrier"},
		{[]string{"/sys/net/unplugged", "/sys/net/up"}, ""},
		{[]string{"/sys/net/gone"}, "link of x: the network interface has left the host"},
		{[]string{"/sys/net/representor", "/sys/net/unplugged"}, "link of x: no carrier"},
		{[]string{"/sys/net/representor", "/sys/net/uplink"}, ""},
		{[]string{"/sys/net/representor"}, "link of x: no network interface"},
	} {
		check := device.Check{Links: []device.LinkCheck{{Of: "x", Dirs: tc.dirs}}}
		got := Once(t.Context(), below(dir), map[string]device.Check{"x": check}, 10*s)
		if got["x"] != tc.want {
			t.Errorf("%v: %q, want %q", tc.dirs, got["x"], tc.want)
		}
	}
}
