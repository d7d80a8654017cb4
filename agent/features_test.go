package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Node Feature Discovery finds a whole file with what is there now, and no other.
func TestFeatures(t *testing.T) {
	t.Parallel()
	n := newNode(t, zigbee+"[[resource]]\nname = \"fuse\"\ncount = 10\nmatch.glob = \"/dev/fuse\"\n[[resource]]\nname = \"absent\"\nmatch.glob = \"/dev/absent\"\n")
	n.addNodes("fuse")
	n.addBus()
	n.host.AddUSB(stick("1-1", "AAAA1111", "ttyUSB0"))
	n.options.Paths.NFDDir = filepath.Join(t.TempDir(), "features.d")
	n.serve()
	const head, fuse = "# healthy devices by resource\n", "example.com/fuse=1\n"
	file := filepath.Join(n.options.Paths.NFDDir, "generic-dp")
	want := func(text string) {
		t.Helper()
		n.eventually("features "+text, func() bool {
			have, err := os.ReadFile(file)
			return err == nil && string(have) == text
		})
	}
	n.eventually("warning about a missing directory", func() bool {
		return strings.Contains(n.log.String(), "labels of the node can't be written")
	})
	if err := os.Mkdir(n.options.Paths.NFDDir, 0o755); err != nil {
		t.Fatal(err)
	}
	n.host.AddUSB(stick("1-2", "BBBB2222", "ttyUSB1"))
	want(head + "example.com/zigbee=2\n" + fuse)
	n.host.RemoveUSB("1-1")
	n.host.RemoveUSB("1-2")
	want(head + fuse)
	n.host.AddUSB(stick("1-3", "AAAA1111", "ttyUSB0"))
	want(head + "example.com/zigbee=1\n" + fuse)
	files, err := os.ReadDir(n.options.Paths.NFDDir)
	if err != nil || len(files) != 1 {
		t.Errorf("files %v, %v", files, err)
	}
}
