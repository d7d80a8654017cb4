package matchers_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/matchers"
)

func TestDirectoryNotes(t *testing.T) {
	t.Parallel()
	snap := machine(t, desktop)
	const place = `error: test.toml: resource 1 ("x"): `
	for _, tc := range []struct {
		name, toml string
		want       []string
	}{
		{"a directory", `match.glob = "/dev/snd"`, []string{place + `match 1: glob: "/dev/snd" is a directory: only the nodes in it can be selected (did you mean "/dev/snd/*"?)`}},
		{"one of several", `match.glob = ["/dev/fuse", "/dev/dri"]`, []string{place + `match 1: glob: "/dev/dri" is a directory: only the nodes in it can be selected (did you mean "/dev/dri/*"?)`}},
		{"a pattern of directories alone", `match.glob = "/dev/bus/usb/*"`, []string{place + `match 1: glob: "/dev/bus/usb/001" is a directory: only the nodes in it can be selected (did you mean "/dev/bus/usb/*/*"?)`}},
		{"excluded", "match.glob = \"/dev/snd/*\"\nexclude.glob = \"/dev/snd\"", []string{place + `exclude 1: glob: "/dev/snd" is a directory: only the nodes in it can be selected (did you mean "/dev/snd/*"?)`}},
		{"a companion", "match.glob = \"/dev/kvm\"\nwith = [{ path = \"/dev/snd\", optional = true }, { path = \"/dev/bus/usb/*\", optional = true }]",
			[]string{place + `with 2: path: "/dev/bus/usb/001" is a directory: only the nodes in it can be selected (did you mean "/dev/bus/usb/*/*"?)`}},
		{"nodes and directories", `match.glob = "/dev/*"`, nil},
		{"nodes below", `match.glob = "/dev/snd/*"`, nil},
		{"deep", `match.glob = "/dev/disk/**"`, nil},
		{"negative", `match.glob = ["/dev/*", "!/dev/snd"]`, nil},
		{"nothing there", `match.glob = "/dev/ttyACM0"`, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			result := matchers.Match(dangerously(parse(t, tc.toml+"\ncontainer.cdi = true")), snap, nil, matchers.Options{Host: &fakeHost{}, Allow: anything})
			equal(t, "notes", tc.want, sayNotes(result.Notes))
		})
	}
}

// An exclude that has nothing in common with any match leaves nothing out, on no host.
func TestExcludeNotes(t *testing.T) {
	t.Parallel()
	snap := machine(t, desktop)
	const note = `test.toml: resource 1 ("x"): exclude 1: it never leaves anything out, because no match selects what it describes`
	for toml, isNoted := range map[string]bool{
		"match.glob = \"/opt/*\"\nexclude.usb.id = \"10c4:ea60\"":                                               true,
		"match.usb.id = \"10c4:ea60\"\nexclude.usb.id = \"1234:*\"":                                             true,
		"match.usb.id = \"10c4:ea60\"\nexclude.mdev = {}":                                                       true,
		"match.virtual = \"a\"\nexclude.glob = \"/dev/x\"":                                                      true,
		"match.usb.id = \"10c4:ea60\"\nexclude.glob = \"/opt/x\"":                                               true,
		"match.usb.id = \"10c4:ea60\"\nexclude.usb = { id = \"10c4:*\", serial = \"A*\" }":                      false,
		"match.usb.id = [\"10c4:ea60\", \"0403:6001\"]\nexclude.usb.id = \"0403:6001\"":                         false,
		"match = { usb = { interface = \"0\" }, glob = \"/dev/ttyUSB*\" }\nexclude.usb = { interface = \"1\" }": false,
		"match.glob = \"/dev/ttyUSB*\"\nexclude.usb.id = \"1234:*\"":                                            false,
		"match.glob = \"/opt/*\"\nexclude.glob = \"/opt/x\"":                                                    false,
	} {
		t.Run(toml, func(t *testing.T) {
			t.Parallel()
			result := matchers.Match(parse(t, toml), snap, nil, matchers.Options{Host: &fakeHost{}, Allow: anything})
			if got := slices.Contains(sayNotes(result.Notes), note); got != isNoted {
				t.Errorf("noted: %v, want %v: %q", got, isNoted, sayNotes(result.Notes))
			}
		})
	}
}

// A condition on an attribute that lacks the 0x of the file is noted, also where it excludes nothing.
func TestHexadecimalNotes(t *testing.T) {
	t.Parallel()
	snap, opts := scanned(t, rig(t))
	for toml, want := range map[string]string{
		"match = { pci = {}, attr.vendor = \"10de\" }":      `test.toml: resource 1 ("x"): match 1: attr.vendor is compared with the text of the file, which has "0x10de"`,
		"match.pci = {}\nexclude.attr.vendor = \"10de\"":    `test.toml: resource 1 ("x"): exclude 1: attr.vendor is compared with the text of the file, which has "0x10de"`,
		"match = { pci = {}, attr.vendor = \"{0x,}10de\" }": "",
		"match = { pci = {}, attr.vendor = \"!0x10de\" }":   "",
		"match = { pci = {}, attr.vendor = \"*10de\" }":     "",
		"match = { pci = {}, attr.vendor = \"eeee\" }":      "",
	} {
		t.Run(toml, func(t *testing.T) {
			t.Parallel()
			got := ""
			for _, note := range sayNotes(matchers.Match(parse(t, toml), snap, nil, opts).Notes) {
				if strings.Contains(note, "0x") {
					got += note
				}
			}
			if got != want {
				t.Errorf("notes %q; want %q", got, want)
			}
		})
	}
}

func TestDirs(t *testing.T) {
	t.Parallel()
	snap := machine(t, desktop)
	for _, tc := range []struct {
		name, toml string
		want       []string
	}{
		{"a node", `match.glob = "/dev/ttyUSB*"`, []string{"/dev"}},
		{"a directory", `match.glob = "/dev/snd/*"`, []string{"/dev/snd"}},
		{"links", `match.glob = "/dev/serial/by-id/*"`, []string{"/dev/serial/by-id"}},
		{"a directory that is not there: the nearest above", `match.glob = ["/dev/vfio/*", "/dev/serial/by-label/x/*"]`, []string{"/dev", "/dev/serial"}},
		{"wildcard directories", `match.glob = "/dev/bus/usb/*/*"`, []string{"/dev/bus/usb", "/dev/bus/usb/001", "/dev/bus/usb/002"}},
		{"named below wildcards", `match.glob = "/dev/*/by-id/*"`, []string{"/dev", "/dev/bus", "/dev/disk", "/dev/disk/by-id", "/dev/dri", "/dev/input", "/dev/input/by-id", "/dev/net", "/dev/serial", "/dev/serial/by-id", "/dev/snd", "/dev/v4l", "/dev/v4l/by-id"}},
		{"deep: what is in front of ** may be the node", `match.glob = "/dev/serial/**"`, []string{"/dev", "/dev/serial", "/dev/serial/by-id", "/dev/serial/by-path"}},
		{"deep in the middle", `match.glob = "/dev/bus/**/001"`, []string{"/dev", "/dev/bus", "/dev/bus/usb", "/dev/bus/usb/001", "/dev/bus/usb/002"}},
		{"all", `match.glob = "/dev/**"`, snap.Dirs},
		{"alternatives", `match.glob = "/dev/{snd,serial/by-id}/*"`, []string{"/dev/serial/by-id", "/dev/snd"}},
		{"excluded and hardware", "match = { usb = {}, glob = \"/dev/snd/*\" }\nexclude.glob = \"/dev/dri/*\"", []string{"/dev/dri", "/dev/snd"}},
		{"companions", "match.glob = \"/dev/snd/pcmC*D*c\"\nwith = [{ path = \"/dev/net/tun\" }, { path = \"/dev/v4l/by-id/x${1}\" }, { path = \"/dev/dri/*\" }, { path = \"/opt/fw\" }]",
			[]string{"/dev/dri", "/dev/net", "/dev/snd", "/dev/v4l/by-id", "/opt"}},
		{"companions by a pattern with a variable", "match.glob = \"/dev/snd/pcmC*D*c\"\nwith = [{ path = \"/dev/serial/${kernel}/*\" }, { path = \"/opt/x${1}/*/fw*\" }, { path = \"/dev/bus/${kernel}*\" }]", []string{"/dev/bus", "/dev/serial", "/dev/serial/by-id", "/dev/serial/by-path", "/dev/snd", "/opt"}},
		{"no glob", `match.usb = {}`, nil},
		{"when", "match.usb = {}\nwhen.exists = [\"!/dev/dri/*\", \"/dev/kfd\", \"/sys/module/nvidia\"]", []string{"/dev", "/dev/dri"}},
		{"what is mounted", "match = { glob = [\"/run/vendor/*/x.sock\", \"!/run/vendor/a*/*\"] }\nwith = [{ path = \"/opt/${1}/fw\" }, { path = \"/dev/dri/by-*\" }, { path = \"/etc/vendor/x.conf\", container_path = \"/x\" }, { path = \"/var/x\", container_path = \"/y\", optional = true }]",
			[]string{"/dev/dri", "/etc/vendor", "/opt", "/run/vendor"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			equal(t, "directories", tc.want, matchers.Dirs(parse(t, tc.toml), snap.Dirs))
		})
	}
}

// Libraries look up some nodes by their number and open the kernel's name.
func TestRenamedNodes(t *testing.T) {
	t.Parallel()
	snap := machine(t, desktop)
	for text, want := range map[string]string{
		"match.glob = \"/dev/dri/card*\"\ncontainer.path = \"/dev/gpu\"":           "/dev/dri/card0 is at /dev/gpu in the container: libraries look up DRM nodes",
		"match.glob = \"/dev/dri/card*\"\ncontainer.path = \"/dev/dri/${kernel}\"": "",
		"match.glob = \"/dev/ttyUSB0\"\ncontainer.path = \"/dev/zigbee\"":          "",
	} {
		result := matchers.Match(parse(t, text+"\ncontainer.cdi = true"), snap, nil, matchers.Options{Host: &fakeHost{}, CDI: true})
		notes := strings.Join(sayNotes(result.Notes), "\n")
		if want == "" && notes != "" || !strings.Contains(notes, want) {
			t.Errorf("%s: notes %q; want %q", text, notes, want)
		}
	}
}

// Programs that depend on names get no old name through a link.
func TestNamedNodes(t *testing.T) {
	t.Parallel()
	const why = " without container.cdi: programs find these nodes by their names, and a container that restarts after their numbers have changed finds them under the old names"
	snap := machine(t, desktop)
	for _, tc := range []struct {
		name, toml string
		want       []string
	}{
		{"of a stick", `match.usb = { id = "046d:082d" }`, []string{"USB bus nodes (/dev/bus/usb/001/006)", "sound nodes (/dev/snd/controlC1 and 1 more)"}},
		{"graphics", `match.glob = "/dev/dri/card*"`, []string{"DRM nodes (/dev/dri/card0)"}},
		{"in a directory that is the host's", "match.glob = \"/dev/dri/card*\"\ncontainer.path = \"/dev/dri/\"", []string{"DRM nodes (/dev/dri/card0)"}},
		{"serial ports", `match.glob = "/dev/ttyUSB*"`, nil},
		{"by cdi", "match.glob = \"/dev/dri/card*\"\ncontainer.cdi = true", nil},
		{"without cdi", "match.glob = \"/dev/dri/card*\"\ncontainer.cdi = false", []string{"DRM nodes (/dev/dri/card0)"}},
		{"companions", "match.glob = \"/dev/fuse\"\nwith = { path = \"/dev/dri/card*\" }", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var want []string
			for _, text := range tc.want {
				want = append(want, `test.toml: resource 1 ("x"): `+text+why)
			}
			equal(t, "notes", want, sayNotes(matchers.Match(parse(t, tc.toml), snap, nil, matchers.Options{Host: &fakeHost{}}).Notes))
			// With a directory for specs "auto" adds their CDI names.
			also := want != nil && tc.name != "without cdi"
			result := matchers.Match(parse(t, tc.toml), snap, nil, matchers.Options{Host: &fakeHost{}, CDI: true})
			if also {
				want = nil
			}
			equal(t, "notes with CDI", want, sayNotes(result.Notes))
			if got := result.Resources[0].Offers[0].AlsoCDI; got != also {
				t.Errorf("AlsoCDI = %t, want %t", got, also)
			}
		})
	}
}
