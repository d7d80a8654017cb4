package recording_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/host/recording"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

func options(tree recording.Tree) inventory.Options {
	return inventory.Options{Sysfs: tree.Sysfs(), Dev: tree.Dev()}
}

func scan(t testing.TB, o inventory.Options) *device.Snapshot {
	t.Helper()
	snap, _ := sysfstest.Scan(t, o)
	return snap
}

func record(t testing.TB, host inventory.Options, o recording.Options) []byte {
	t.Helper()
	archive, err := recording.Record(t.Context(), host, o)
	must(t, err)
	return archive
}

func unpack(t testing.TB, archive []byte) recording.Tree {
	t.Helper()
	tree := recording.Tree{Root: t.TempDir()}
	if err := recording.Unpack(tree.Root, archive); err != nil {
		t.Fatalf("%v\n%s", err, archive)
	}
	return tree
}

// machines are the files of testdata/machines by name.
func machines(t testing.TB) map[string]recording.Tree {
	t.Helper()
	files, err := filepath.Glob("../../../testdata/machines/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("machines: %q, %v", files, err)
	}
	trees := make(map[string]recording.Tree)
	for _, file := range files {
		trees[filepath.Base(file)] = sysfstest.Load(t, file)
	}
	return trees
}

// A scan of the recording equals the scan of the host, and so does a recording of it.
func TestRecordingIsTheHost(t *testing.T) {
	t.Parallel()
	for name, tree := range machines(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			archive := record(t, options(tree), recording.Options{Head: "A head.\n\n"})
			again := unpack(t, archive)
			equal(t, "result", scan(t, options(tree)), scan(t, options(again)))
			equal(t, "result", string(archive), string(record(t, options(again), recording.Options{Head: "A head.\n\n"})))
		})
	}
}

// For any name of a device or a file below /dev, the recording is plain text and
// complete.
func TestHostileHost(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddBus()
	for i, serial := range []string{
		"x\n-- dev/null --\nchar 1:3", "-- dev/zero --", "\xff\xfe\xfd", strings.Repeat("long", 50), "\x1b[2J\a\x00x", " spaces ", `"quoted"`,
		"-- sys/x -> y --", "a\r\nb", "Gerät", "\u202egpj.exe", "two\nlines\n", "A1B2C3 = -> ",
	} {
		h.AddUSB(sysfstest.USB{
			Port: fmt.Sprintf("1-%d", i+1), Vendor: "0403", Product: "6001", Serial: serial, Manufacturer: "maker of " + serial, ProductName: serial,
			Interfaces: []sysfstest.Interface{{Class: "ff", Driver: "ftdi_sio", Nodes: []sysfstest.Node{sysfstest.SerialPort(fmt.Sprintf("ttyUSB%d", i), 0)}}},
		})
	}
	for i, name := range []string{`"q"`, `\`, "--", "…", "a->b", "a=b", "two words", "-- x --"} {
		h.AddLink(name, "ttyUSB0")
		h.AddLink("target"+fmt.Sprint(i), name)
		h.AddLink("in/"+name+"/"+name, "../../ttyUSB0")
		writeNode(t, filepath.Join(h.Dev(), "node of "+name), i)
	}
	h.AddLink("dangling", "nowhere")
	h.AddLink("outside", "../../../etc/passwd")
	h.AddLink("circle", "circle")
	h.AddLink("by-hand/ttyUSB0", "/dev/ttyUSB0")

	want := scan(t, options(h.Tree))
	if len(want.Problems) > 0 || len(want.Links) < 20 {
		t.Fatalf("%d links, problems %v", len(want.Links), want.Problems)
	}
	archive := record(t, options(h.Tree), recording.Options{Head: "Head.\n"})
	for l := range strings.Lines(string(archive)) {
		if strings.ContainsFunc(l, func(r rune) bool { return r < ' ' && r != '\n' || r == '\uFFFD' }) {
			t.Errorf("not plain: %q", l)
		}
	}
	if !strings.Contains(string(archive), "-- dev/dangling -> nowhere --\n") {
		t.Error("the dangling link is not recorded")
	}
	tree := unpack(t, archive)
	equal(t, "result", want, scan(t, options(tree)))
	equal(t, "result", string(archive), string(record(t, options(tree), recording.Options{Head: "Head.\n"})))
}

// Names that an archive cannot have are left out, and nothing else is.
func TestNamesThatAreLeftOut(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330"})
	want := scan(t, options(h.Tree))
	names := []string{"new\nline", "x\n-- dev/null --\nchar 1:3\n-- dev/y", "a -> b", "a = b", " space ", "\xff\xfe", "-- ", "tab\t", "\u202e"}
	for i, name := range names {
		h.AddLink("to"+fmt.Sprint(i)+name, "nowhere")
		writeNode(t, filepath.Join(h.Dev(), "in "+name, "node of "+name), i)
	}
	archive := record(t, options(h.Tree), recording.Options{})
	if n := strings.Count(string(archive), "left out: "); n < 2*len(names) {
		t.Errorf("%d names are left out, want %d:\n%s", n, 2*len(names), archive)
	}
	got := scan(t, options(unpack(t, archive)))
	equal(t, "result", want.Nodes, got.Nodes)
}

func writeNode(t *testing.T, file string, minor int) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(file), 0o755))
	must(t, os.WriteFile(file, []byte(fmt.Sprintf("char 240:%d\n", minor)), 0o644))
}

// An archive has no link that leads out of sysfs, and says so.
func TestLinkThatLeadsOut(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	dir := h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330"})
	must(t, os.Symlink("/etc", filepath.Join(h.Sysfs(), dir, "driver")))
	archive := record(t, options(h.Tree), recording.Options{})
	if want := "  sys/" + dir + `/driver: left out: leads out of sys to "/etc"` + "\n"; !strings.Contains(string(archive), want) {
		t.Errorf("archive begins with\n%.300s\nwant %s", archive, want)
	}
	if snap := scan(t, options(unpack(t, archive))); len(snap.Hardware) != 1 || snap.Hardware[0].PCI.Driver != "" {
		t.Errorf("hardware %+v", snap.Hardware)
	}
}

// The kernel names the ACPI companion of a device by a link, and an attribute of a companion
// with a counted name ("device:1e") is read through it.
func TestAttributeBehindLink(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	smbus := h.AddPCI(sysfstest.PCI{Address: "0000:00:1f.3", Vendor: "8086", Device: "9d23", Class: "0c0500", Driver: "i801_smbus"})
	h.AddNode(smbus+"/i2c-0", sysfstest.Node{Name: "i2c-0", Subsystem: "i2c-dev", Major: 89, Minor: 0})
	h.AddNode(smbus+"/i2c-1", sysfstest.Node{Name: "i2c-1", Subsystem: "i2c-dev", Major: 89, Minor: 1})
	companion := "devices/LNXSYSTM:00/LNXSYBUS:00/PNP0A08:00/device:1e"
	err := os.MkdirAll(filepath.Join(h.Sysfs(), companion), 0o755)
	must(t, err)
	err = os.WriteFile(filepath.Join(h.Sysfs(), companion, "path"), []byte("\\_SB_.PCI0.SBUS\n"), 0o644)
	must(t, err)
	err = os.Symlink("../../LNXSYSTM:00/LNXSYBUS:00/PNP0A08:00/device:1e", filepath.Join(h.Sysfs(), smbus, "firmware_node"))
	must(t, err)
	for _, redact := range []bool{false, true} {
		archive := record(t, options(h.Tree), recording.Options{Redact: redact})
		for _, want := range []string{
			"-- sys/" + companion + "/path --\n\\_SB_.PCI0.SBUS\n",
			"-- sys/" + smbus + "/firmware_node -> ../../LNXSYSTM:00/LNXSYBUS:00/PNP0A08:00/device:1e --\n",
		} {
			if !strings.Contains(string(archive), want) {
				t.Errorf("redacted %v: the archive lacks %q:\n%s", redact, want, archive)
			}
		}
		equal(t, "result", scan(t, options(h.Tree)), scan(t, options(unpack(t, archive))))
	}
}

// Links may point to files that a scan does not walk.
func TestMounts(t *testing.T) {
	t.Parallel()
	tree := unpack(t, []byte(`
-- dev/pts/ --
mount
-- dev/pts/0 --
char 136:0
-- dev/pts/ptmx --
char 5:2
-- dev/ptmx -> pts/ptmx --
-- dev/shm/ --
mount
-- dev/shm/x -> ../pts/ptmx --
-- dev/y -> shm/x --
`))
	want := scan(t, options(tree))
	if len(want.Nodes) != 1 || want.Nodes[0].Path != "/dev/pts/ptmx" || len(want.Links) != 3 || len(want.Dirs) != 1 {
		t.Fatalf("nodes %+v, links %v, directories %q", want.Nodes, want.Links, want.Dirs)
	}
	archive := record(t, options(tree), recording.Options{})
	equal(t, "result", want, scan(t, options(unpack(t, archive))))
	if strings.Contains(string(archive), "136:0") {
		t.Errorf("a node that no link leads to is recorded:\n%s", archive)
	}
}

// Unreadable files are missing, and the head names them.
func TestProblemsAreListed(t *testing.T) {
	t.Parallel()
	h := sysfstest.New(t)
	dir := h.AddPCI(sysfstest.PCI{Address: "0000:00:14.0", Vendor: "8086", Device: "a36d", Class: "0c0330"})
	numa := filepath.Join(h.Sysfs(), dir, "numa_node")
	must(t, os.Remove(numa))
	must(t, os.Mkdir(numa, 0o755))
	archive := string(record(t, options(h.Tree), recording.Options{Head: "Head.\n"}))
	want := "Head.\nWhat could not be read, and is not here:\n  devices/pci0000:00/0000:00:14.0: numa_node: is a directory\n\n-- "
	if !strings.HasPrefix(archive, want) {
		t.Errorf("archive begins with\n%.200s\nwant\n%s", archive, want)
	}
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// equal reports how a result differs from the expected one.
func equal(t testing.TB, what string, want, got any, opts ...cmp.Option) {
	t.Helper()
	if diff := cmp.Diff(want, got, opts...); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
