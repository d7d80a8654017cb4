package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// kubelet is a file of kubelet 1.36, with two pods.
const kubelet = `{"Data":{"PodDeviceEntries":[` +
	`{"PodUID":"a-1","ContainerName":"c","ResourceName":"example.com/x","DeviceIDs":{"-1":["d1"],"0":["d2"]},"AllocResp":"CgA="},` +
	`{"PodUID":"b-2","ContainerName":"init","ResourceName":"example.com/y","DeviceIDs":{"1":["e1"]},"AllocResp":"CgA="}],` +
	`"RegisteredDevices":{"example.com/x":["d1","d2"]}},"Checksum":12345}`

func read(t *testing.T, text string) (all []Allocation, v Version, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), Name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err = Read(path, func(a Allocation) bool {
		slices.Sort(a.IDs)
		all = append(all, a)
		return true
	})
	if err == nil && v != Current(path) {
		t.Error("the version that was read is not the current one")
	}
	return all, v, err
}

func TestRead(t *testing.T) {
	t.Parallel()
	both := []Allocation{{"a-1", "example.com/x", []string{"d1", "d2"}}, {"b-2", "example.com/y", []string{"e1"}}}
	for name, test := range map[string]struct {
		text string
		want []Allocation
	}{
		"kubelet 1.36": {kubelet, both},
		"other order":  {strings.Replace(`{"Checksum":1,"Data":{"RegisteredDevices":{},`+kubelet[len(`{"Data":{`):], `,"Checksum":12345`, "", 1), both},
		"null":         {`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}`, nil},
		"empty":        {`{"Data":{"PodDeviceEntries":[]}}`, nil},
	} {
		got, _, err := read(t, test.text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
}

func TestReadBroken(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "{", "[]", "null", "1", `{"Data":1}`, `{"Data":{}}`, `{"Data":{"PodDeviceEntries":{}}}`, kubelet[:100], kubelet[:len(kubelet)/2+20],
		`{"Data":{"PodDeviceEntries":[{"DeviceIDs":[1]}]}}`, strings.Repeat("[", 100_000),
	} {
		if _, v, err := read(t, text); err == nil || v != (Version{}) {
			t.Errorf("%.40q: version %v, want an error", text, v)
		}
	}
}

// Anything but a regular file of limited size is not read.
func TestReadOther(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	huge := filepath.Join(dir, "huge")
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, maxSize+1); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, huge, dir, filepath.Join(dir, "missing")} {
		if _, err := Read(path, nil); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
	if Current(filepath.Join(dir, "missing")) != (Version{}) {
		t.Error("a missing file has a version")
	}
}

// A reader may stop at any allocation.
func TestReadStops(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), Name)
	if err := os.WriteFile(path, []byte(kubelet), 0o600); err != nil {
		t.Fatal(err)
	}
	calls := 0
	if _, err := Read(path, func(Allocation) bool { calls++; return false }); err != nil || calls != 1 {
		t.Errorf("%d calls, %v; want 1", calls, err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(kubelet)
	f.Fuzz(func(_ *testing.T, text string) {
		_ = decode(strings.NewReader(text), func(Allocation) bool { return true })
	})
}
