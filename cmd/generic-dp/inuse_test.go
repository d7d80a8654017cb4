package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/kubelettest"
	"github.com/generic-dp/generic-dp/metrics"
)

// swapDisk is a loop device that can be swap space, of one megabyte.
func swapDisk(t *testing.T) string {
	t.Helper()
	number := 3000 + rand.IntN(100_000) // of this test alone
	path := fmt.Sprintf("/dev/loop%d", number)
	file, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("loop devices can't be made here: %v", err)
	}
	control := loopControl{file}
	if err := control.call(unix.LOOP_CTL_ADD, number); err != nil {
		t.Skipf("loop devices can't be made here: %v", err)
	}
	t.Cleanup(func() {
		_ = control.call(unix.LOOP_CTL_REMOVE, number)
		_ = file.Close()
	})
	// The page at the start of swap space (union swap_header in include/linux/swap.h).
	const size, page = 1 << 20, 4096
	if os.Getpagesize() != page {
		t.Skip("pages are of another size")
	}
	swap := make([]byte, size)
	binary.NativeEndian.PutUint32(swap[1024:], 1)
	binary.NativeEndian.PutUint32(swap[1028:], size/page-1)
	copy(swap[page-10:], "SWAPSPACE2")
	backing := filepath.Join(t.TempDir(), "swap")
	if err := os.WriteFile(backing, swap, 0o600); err != nil {
		t.Fatal(err)
	}
	from, err := os.OpenFile(backing, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	disk, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	if err := unix.IoctlSetInt(int(disk.Fd()), unix.LOOP_SET_FD, int(from.Fd())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if disk, err := os.Open(path); err == nil {
			_ = unix.IoctlSetInt(int(disk.Fd()), unix.LOOP_CLR_FD, 0)
			_ = disk.Close()
		}
	})
	return path
}

// swap has the host use a disk as swap space, or no longer.
func swap(t *testing.T, call uintptr, path string) {
	t.Helper()
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, errno := unix.Syscall(call, uintptr(unsafe.Pointer(name)), 0, 0); errno != 0 {
		if call == unix.SYS_SWAPON {
			t.Skipf("swapon %s: refused here: %v", path, errno)
		}
		t.Fatalf("swapoff %s: %v", path, errno)
	}
}

// A disk that the host begins to use is Unhealthy from then on, and Healthy when it
// lets go of it, though no event of a device tells.
func TestDiskThatTheHostUses(t *testing.T) {
	t.Parallel()
	disk := swapDisk(t)
	dir, err := os.MkdirTemp("", "gdp") // a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	config := filepath.Join(dir, "c.toml")
	if err := os.WriteFile(config, []byte("domain = \"example.com\"\n[[resource]]\nname = \"disk\"\nmatch.glob = \""+disk+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	kubelet := kubelettest.New(kubelettest.Options{Dir: filepath.Join(dir, "k")})
	if err := kubelet.Start(); err != nil {
		t.Fatal(err)
	}
	defer kubelet.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	cmd := exec.CommandContext(ctx, "generic-dp", "serve", "--config", config, "--kubelet-dir", filepath.Join(dir, "k"), "--listen", address,
		"--run-dir", dir+"/run", "--state-dir", dir+"/state", "--cdi-dir", dir+"/cdi", "--pod-resources", dir+"/none")
	cmd.Env = append(os.Environ(), "KUBERNETES_SERVICE_HOST=")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	want := func(what string, healthy int) {
		t.Helper()
		if err := kubelet.WaitAllocatable(ctx, "example.com/disk", healthy); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	want("at the start", 1)
	swap(t, unix.SYS_SWAPON, disk)
	defer func() {
		if t.Failed() {
			swap(t, unix.SYS_SWAPOFF, disk)
		}
	}()
	want("used", 0)
	swap(t, unix.SYS_SWAPOFF, disk)
	want("used no more", 1)
	// Events of other devices of this host may have come to its aid.
	page, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	text, err := io.ReadAll(page.Body)
	if err != nil || !strings.Contains(string(text), metrics.ScansTotal+`{reason="mounts"}`) {
		t.Errorf("no scan with the reason mounts: %v\n%s", err, text)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
