package config_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

func TestHealth(t *testing.T) {
	t.Parallel()
	cfg := parse(t, `
domain = "example.com"
[[resource]]
name = "camera"
match = [{ glob = "/dev/video*" }, { glob = ["/dev/*dog", "!/dev/watchdog*"] }]
health.open = true
health.attr = { "power/runtime_status" = ["active", "!error"], authorized = "1" }
health.tcp = "[fd00::${kernel}]:${usb.interface}"
[[resource]]
name = "serial"
match.glob = "/dev/ttyUSB*"
health = { open = false, attr.authorized = "!0", interval = "90s" }
[[resource]]
name = "fuse"
match.glob = "/dev/fuse"
`)
	type health struct {
		Open     bool
		Attr     map[string][]string
		TCP      device.Text
		Interval time.Duration
	}
	want := []*health{
		{
			Open:     true,
			Attr:     map[string][]string{"power/runtime_status": {"active", "!error"}, "authorized": {"1"}},
			TCP:      device.Text{lit("[fd00::"), vars("kernel"), lit("]:"), vars("usb.interface")},
			Interval: 30 * time.Second,
		},
		{Attr: map[string][]string{"authorized": {"!0"}}, Interval: 90 * time.Second},
		nil,
	}
	for i, r := range cfg.Resources {
		var got *health
		if h := r.Health; h != nil {
			got = &health{Open: h.Open, Attr: map[string][]string{}, TCP: h.TCP, Interval: h.Interval}
			for name, v := range h.Attr {
				got.Attr[name] = v.Patterns()
			}
		}
		if diff := cmp.Diff(want[i], got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", r.Name, diff)
		}
	}
}

func TestCheckAddress(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"10.0.0.5:554": true, "camera-1.example.com:65535": true, "[fd00::5]:1": true, "[fe80::1%eth0]:80": true, "localhost:1": true,
		"": false, "10.0.0.5": false, ":554": false, "10.0.0.5:": false, "10.0.0.5:0": false, "10.0.0.5:65536": false, "10.0.0.5:-1": false,
		"10.0.0.5:http": false, "a b:1": false, "user@host:1": false, "host/path:1": false, "fd00::5:554": false, "[[::1]]:2": false, "a\x00:1": false,
	} {
		if err := config.CheckAddress(address); (err == nil) != ok {
			t.Errorf("CheckAddress(%q) = %v, want ok: %t", address, err, ok)
		}
	}
}
