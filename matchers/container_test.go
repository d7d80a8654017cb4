package matchers_test

import (
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/matchers"
)

func TestCompanions(t *testing.T) {
	t.Parallel()
	snaps := map[string]*device.Snapshot{desktop: machine(t, desktop), server: machine(t, server)}
	const fuse = "match.glob = \"/dev/fuse\"\n"
	gone := fakeHost{exists: func(string) bool { return false }}
	globs := fakeHost{glob: files("/opt/b", "/opt/a")}
	for _, tc := range []struct {
		name, toml string
		machine    string
		host       fakeHost
		want       []string
	}{
		{name: "node", toml: fuse + `with = { path = "/dev/net/tun", permissions = "rwm" }`, want: []string{"fuse /dev/fuse +/dev/net/tun:rwm"}},
		{name: "at a path", toml: fuse + `with = { path = "/dev/net/tun", container_path = "/dev/tun" }`, want: []string{"fuse /dev/fuse +/dev/net/tun>/dev/tun"}},
		{name: "a link means its node, at the path of the link", toml: fuse + `with = { path = "/dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A10K5XYZ-if00-port0" }`,
			want: []string{"fuse /dev/fuse +/dev/ttyUSB0>/dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A10K5XYZ-if00-port0"}},
		{name: "links by pattern are mounts", toml: fuse + `with = { path = "/dev/serial/by-id/usb-FTDI_FT232R*" }`,
			want: []string{"fuse /dev/fuse mount /dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A10K5XYZ-if00-port0>/dev/serial/by-id/usb-FTDI_FT232R_USB_UART_A10K5XYZ-if00-port0"}},
		{name: "glob", toml: fuse + `with = { path = "/dev/snd/*C0*", container_path = "/dev/audio/" }`, want: []string{"fuse /dev/fuse +/dev/snd/controlC0>/dev/audio/controlC0 +/dev/snd/pcmC0D0c>/dev/audio/pcmC0D0c +/dev/snd/pcmC0D0p>/dev/audio/pcmC0D0p"}},
		{name: "wildcard of the device", toml: `match = { usb = {}, glob = "/dev/snd/pcmC*D*c" }
with = { path = "/dev/snd/controlC${1}" }`, want: []string{"usb:046d:082d:2B5D3F1F /dev/snd/pcmC1D0c +/dev/snd/controlC1"}},
		{name: "pattern with the wildcard of the device", toml: `match = { usb = {}, glob = "/dev/snd/controlC*" }
with = { path = "/dev/snd/pcmC${1}D*" }`, want: []string{"usb:046d:082d:2B5D3F1F /dev/snd/controlC1 +/dev/snd/pcmC1D0c"}},
		{name: "a variable is literal in a pattern", toml: `match.virtual = [{ name = "v", vars = { card = "*", cards = "0-9" } }]
with = [{ path = "/dev/snd/controlC${var:card}*" }, { path = "/dev/snd/*C[${var:cards}]D*", optional = true }, { path = "/dev/snd/{x,controlC${var:card}}", optional = true }]`,
			want: []string{"virtual:example.com:x:v +/dev/snd/pcmC0D0c +/dev/snd/pcmC0D0p !companion /dev/snd/controlC** is missing: nothing matches"}},
		{name: "pattern with a variable without a value", toml: fuse + `with = { path = "/dev/v4l/by-path/${usb.path}*" }`,
			want: []string{"fuse /dev/fuse !path of a companion: ${usb.path} has no value for /dev/fuse"}},
		{name: "a node of the device stays its own", toml: `match = { usb = {}, glob = "/dev/snd/*" }
with = { path = "/dev/snd/*C1*" }`, want: []string{"usb:046d:082d:2B5D3F1F /dev/snd/controlC1 /dev/snd/pcmC1D0c"}},
		{name: "missing", machine: desktop, host: gone, toml: fuse + `with = { path = "/dev/kfd" }`, want: []string{"fuse /dev/fuse !companion /dev/kfd is missing"}},
		{name: "missing and optional", host: gone, toml: fuse + `with = { path = "/dev/kfd", optional = true }`, want: []string{"fuse /dev/fuse"}},
		{name: "nothing matches", toml: fuse + `with = [{ path = "/dev/nvidia*" }, { path = "/dev/accel*", optional = true }]`, want: []string{"fuse /dev/fuse !companion /dev/nvidia* is missing: nothing matches"}},
		{name: "directory", toml: fuse + `with = { path = "/dev/snd" }`, want: []string{"fuse /dev/fuse mount /dev/snd>/dev/snd"}},
		{name: "several values", toml: `match = { usb = { id = "0403:6010" }, glob = "/dev/ttyUSB*" }
with = { path = "/dev/snd/controlC${1}", optional = true }`, want: []string{`usb:0403:6010:port:0000:00:14.0:2.4 /dev/ttyUSB2 /dev/ttyUSB3 !path of a companion: ${1} has several values: "2" and "3"`}},
		{name: "mount", toml: fuse + `with = { path = "/run/x.sock" }`, want: []string{"fuse /dev/fuse mount /run/x.sock>/run/x.sock"}},
		{name: "mount missing", toml: fuse + `with = { path = "/run/x.sock" }`, host: gone, want: []string{"fuse /dev/fuse mount /run/x.sock>/run/x.sock !mount /run/x.sock is missing"}},
		{name: "mount missing and optional", toml: fuse + `with = { path = "/run/x.sock", optional = true }`, host: gone, want: []string{"fuse /dev/fuse mount /run/x.sock>/run/x.sock"}},
		{name: "mount of a directory below /dev", toml: fuse + `with = { path = "/dev/dri/by-path" }`, host: gone, want: []string{"fuse /dev/fuse mount /dev/dri/by-path>/dev/dri/by-path"}},
		{name: "mount by glob", toml: fuse + `with = { path = "/opt/*", container_path = "/fw/" }`, host: globs, want: []string{"fuse /dev/fuse mount /opt/a>/fw/a mount /opt/b>/fw/b"}},
		{name: "mount by glob with a variable", host: fakeHost{glob: files("/opt/fuse.bin", "/opt/x.bin", "/etc/fuse.bin")}, toml: fuse + `with = { path = "/{opt,etc}/${kernel}.*" }`,
			want: []string{"fuse /dev/fuse mount /etc/fuse.bin>/etc/fuse.bin mount /opt/fuse.bin>/opt/fuse.bin"}},
		{name: "files by pattern below /dev", host: fakeHost{glob: files("/dev/snd/controlC0", "/dev/snd/by-path", "/dev/snd/socket")}, toml: fuse + `with = { path = "/dev/snd/[cs]o*" }`,
			want: []string{"fuse /dev/fuse +/dev/snd/controlC0 +/dev/snd/controlC1 mount /dev/snd/socket>/dev/snd/socket"}},
		{name: "a file below /dev", toml: fuse + `with = { path = "/dev/log", permissions = "rw" }`, want: []string{"fuse /dev/fuse mount /dev/log>/dev/log"}},
		{name: "mounts", toml: fuse + `with = [{ path = "/opt/fw", container_path = "/fw" }, { path = "/opt/x", container_path = "/x", optional = true }]`, host: gone,
			want: []string{"fuse /dev/fuse mount /opt/fw>/fw mount /opt/x>/x !mount /opt/fw is missing"}},
		{name: "the same mount twice is one", toml: fuse + `with = [{ path = "/opt/fw" }, { path = "/opt/fw", container_path = "/opt/fw" }]`, want: []string{"fuse /dev/fuse mount /opt/fw>/opt/fw"}},
		{name: "a node and a mount at one path", toml: fuse + `with = { path = "/opt/fw", container_path = "/dev/fuse" }`,
			want: []string{"fuse /dev/fuse !/dev/fuse and mount /opt/fw would both be at /dev/fuse in the container: another path in the container for one of them keeps both"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			snap := snaps[desktop]
			if tc.machine != "" {
				snap = snaps[tc.machine]
			}
			got := matchers.Match(parse(t, tc.toml), snap, nil, matchers.Options{Host: &tc.host, Allow: anything}).Resources[0].Offers
			equal(t, "offers", tc.want, sayAll(got))
		})
	}
}

// A companion is followed like any node, with its own key.
func TestCompanionFollows(t *testing.T) {
	t.Parallel()
	o := offers(t, machine(t, desktop), `
match = { usb = { serial = "A10K5XYZ" }, glob = "/dev/ttyUSB*" }
with = [{ path = "/dev/ttyUSB1" }, { path = "/dev/fuse" }]`)[0]
	var got []string
	for _, n := range o.Nodes {
		key := n.Key
		if n.Follow {
			key += " follows"
		}
		got = append(got, key)
	}
	want := []string{"if00:ttyUSB follows", "usb:10c4:ea60:port:0000:00:14.0:2.3:if00:ttyUSB follows", "fuse"}
	equal(t, "keys", want, got)
}
