package bed

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/test/e2e/fixture"
)

// common are the device numbers of the nodes required to start programs and containers.
var common = map[string][2]uint32{
	"null": {1, 3}, "zero": {1, 5}, "full": {1, 7}, "random": {1, 8}, "urandom": {1, 9}, "kmsg": {1, 11}, "tty": {5, 0},
}

// Hardware gives a bed its own /dev, in which kubelet, runtime and program find the
// nodes of fake devices. Like hardware, it survives a reboot.
func (b *Bed) Hardware(t testing.TB) *fixture.Host {
	t.Helper()
	// A separate file system, since that of the bed's directory may be mounted nodev.
	dev := filepath.Join(b.hardware(), "dev")
	if err := os.MkdirAll(dev, 0o755); err != nil {
		t.Fatal(err)
	}
	b.Run(t, "mount", "-t", "tmpfs", "-o", "mode=0755", "dev", dev)
	b.Run(t, "mkdir", filepath.Join(dev, "pts"))
	b.Run(t, "mount", "--bind", "/dev/pts", filepath.Join(dev, "pts"))
	b.Run(t, "mount", "--rbind", dev, "/dev")
	for name, n := range common {
		b.Mknod(t, b.Path("/dev/"+name), n[0], n[1])
		if err := unix.Chmod(b.Path("/dev/"+name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd"} {
		if err := os.Symlink(target, b.Path("/dev/"+name)); err != nil {
			t.Fatal(err)
		}
	}
	return fixture.At(t, b.Path(b.hardware()))
}

func (b *Bed) hardware() string { return filepath.Join(b.Dir, "host") }

// Sysfs is the /sys of the hardware, in the bed.
func (b *Bed) Sysfs() string { return filepath.Join(b.hardware(), "sys") }
