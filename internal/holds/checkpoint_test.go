package holds

import (
	"os"
	"path/filepath"
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

// A file that is not a checkpoint has no entries and an error, and so has anything but a regular file of
// limited size.
func TestReadCheckpoint(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), CheckpointName)
	both := []checkpointEntry{
		{"a-1", "example.com/x", map[string][]string{"-1": {"d1"}, "0": {"d2"}}},
		{"b-2", "example.com/y", map[string][]string{"1": {"e1"}}},
	}
	for text, want := range map[string][]checkpointEntry{
		kubelet: both,
		`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":1}`: nil,
		`{"Data":{"PodDeviceEntries":[]}}`:                                       {},
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readCheckpoint(path)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%.40q: %v, -want +got\n%s", text, err, diff)
		}
	}
	for _, text := range []string{
		"", "{", "[]", "null", "1", `{"Data":1}`, `{"Data":{}}`, `{"Data":{"PodDeviceEntries":{}}}`, kubelet[:100], kubelet[:len(kubelet)/2+20],
		`{"Data":{"PodDeviceEntries":[{"DeviceIDs":[1]}]}}`, strings.Repeat("[", 100_000),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readCheckpoint(path); err == nil || !isUnparsable(err) || got != nil {
			t.Errorf("%.40q: %v, %v, want an error", text, got, err)
		}
	}
	if err := os.Truncate(path, maxCheckpoint+1); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, fifo, t.TempDir(), filepath.Join(t.TempDir(), "missing")} {
		if got, err := readCheckpoint(path); err == nil || isUnparsable(err) || got != nil {
			t.Errorf("%s: %v, %v, want another error", path, got, err)
		}
	}
}
