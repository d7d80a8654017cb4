package node_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/inspect"
	"github.com/generic-dp/generic-dp/test/e2e/process"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// cdiDir is the directory of generated CDI specs for container runtimes.
const cdiDir = "/run/cdi"

// TestCDICommand injects devices into containers without a kubelet: ctr uses the names
// that `serve --no-kubelet` keeps current.
func TestCDICommand(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	first, second := adapter("1-1", "A1B2C3D4", 0), adapter("1-2", "E5F6A7B8", 1)
	n.Plug(first.Stick)
	n.cdi(t, `
[[resource]]
name = "zigbee"
match = { usb = { id = "10c4:ea60" }, glob = "/dev/ttyUSB*" }
container.path = "/dev/zigbee/"
container.env.SERIALS = "${usb.serial}"
`)

	got := n.reportWith(t, zigbee+"="+first.id())
	wantNode(t, got, "/dev/zigbee/ttyUSB0", number{188, 0})
	if got.Env["SERIALS"] != "A1B2C3D4" {
		t.Errorf("environment %v, want the serial", got.Env)
	}

	n.Plug(second.Stick)
	n.waitSpec(t, second.id(), true)
	got = n.reportWith(t, zigbee+"=all")
	wantNode(t, got, "/dev/zigbee/ttyUSB0", number{188, 0})
	wantNode(t, got, "/dev/zigbee/ttyUSB1", number{188, 1})
	if got.Env["SERIALS"] != "A1B2C3D4,E5F6A7B8" {
		t.Errorf("environment %v, want both serials", got.Env)
	}

	// A removed device starts nothing; under another kernel name it is the same device.
	n.Unplug(first.Port)
	n.waitSpec(t, first.id(), false)
	if _, err := n.ctr(t, zigbee+"="+first.id()); err == nil || !strings.Contains(err.Error(), "unresolvable CDI devices") {
		t.Errorf("a container with a removed device: %v, want \"unresolvable CDI devices\"", err)
	}
	n.Plug(adapter("1-3", "A1B2C3D4", 7).Stick)
	n.waitSpec(t, first.id(), true)
	wantNode(t, n.reportWith(t, zigbee+"="+first.id()), "/dev/zigbee/ttyUSB7", number{188, 7})
}

// cdi starts the program without a kubelet.
func (n *node) cdi(t testing.TB, config string) {
	t.Helper()
	file := filepath.Join(n.Dir, "cdi.toml")
	must(t, os.WriteFile(file, []byte(domain+config), 0o644))
	n.Start(t, process.Spec{Name: "cdi", Argv: []string{
		product.Binary(t), "serve", "--no-kubelet", "--config", file, "--sysfs", n.Sysfs(), "--cdi-dir", cdiDir,
		"--run-dir", filepath.Join(n.Dir, "cdi-run"), "--state-dir", filepath.Join(n.Dir, "cdi-state"), "--listen", "",
	}})
	n.waitSpec(t, "", true)
}

// waitSpec waits until the specs contain a device, or no longer do.
func (n *node) waitSpec(t testing.TB, id string, want bool) {
	t.Helper()
	wait.Until(t, limit, "CDI specs", func() error {
		files, err := filepath.Glob(n.Path(filepath.Join(cdiDir, "generic-dp_*.json")))
		if err != nil || len(files) == 0 {
			return errors.Join(err, errors.New("no spec"))
		}
		text, err := os.ReadFile(files[0])
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if strings.Contains(string(text), id) != want {
			return fmt.Errorf("device %q in the spec: %t, want %t", id, !want, want)
		}
		return nil
	})
}

// reportWith returns the report of a container with a CDI device.
func (n *node) reportWith(t testing.TB, name string) inspect.Report {
	t.Helper()
	out, err := n.ctr(t, name)
	must(t, err)
	var report inspect.Report
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return report
}

// ctr runs a container with a CDI device to its end.
func (n *node) ctr(t testing.TB, name string) (stdout []byte, err error) {
	t.Helper()
	return n.Output(t, n.Tool("ctr"), "--address", filepath.Join(n.Dir, "containerd.sock"), "--namespace", "k8s.io",
		"run", "--rm", "--snapshotter", "native", "--runc-binary", n.Tool("runc"), "--device", name,
		// A container that failed to start keeps its name.
		bed.Image, fmt.Sprint("cdi-", time.Now().UnixNano()), "/tool", "inspect", "/dev")
}
