//go:build browser

package status_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/status"
)

const (
	// picturesEnv names a directory for screenshots of each page. Without it, none are made.
	picturesEnv = "GENERIC_DP_PICTURES"
	// statusEnv names a file with a state, /status.json of a node, for make pictures.
	statusEnv = "GENERIC_DP_STATUS"
)

// TestPicture makes the picture of a state that was saved, with picturesEnv.
func TestPicture(t *testing.T) {
	file := os.Getenv(statusEnv)
	if file == "" {
		t.Skipf("%s is not set: this makes the picture of the documentation", statusEnv)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	var s status.Status
	must(t, json.Unmarshal(text, &s))
	open(t, "page", s, "--window-size=1200,540")
}

// open opens the page of a status in Chromium, and returns the document as it is after the script
// has run.
func open(t *testing.T, name string, s status.Status, flags ...string) string {
	t.Helper()
	address := newServer(t, &shown{status: s}).address
	run := func(more ...string) string {
		args := append([]string{
			"--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
			"--hide-scrollbars", "--virtual-time-budget=3000", "--user-data-dir=" + t.TempDir(),
		}, flags...)
		cmd := exec.CommandContext(t.Context(), "chromium", append(append(args, more...), "http://"+address+"/")...)
		out, err := cmd.Output()
		if err != nil {
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				t.Logf("%s", exit.Stderr)
			}
			t.Fatalf("chromium: %v", err)
		}
		return string(out)
	}
	if dir := os.Getenv(picturesEnv); dir != "" {
		run("--screenshot=" + filepath.Join(dir, name+".png"))
	}
	return run("--dump-dom")
}

// serials is a resource with n devices, of which only the last one is Unhealthy.
func serials(n int) status.Resource {
	r := status.Resource{Name: "example.com/serial", Registered: true, Slots: status.Slots{Healthy: max(n-1, 0), Unhealthy: min(n, 1), Held: new(int), Free: new(int)}, API: "device-plugin"}
	for i := range n {
		r.Devices = append(r.Devices, device(fmt.Sprintf("usb:10c4:ea60:A%03d", i), status.Healthy))
	}
	if n > 0 {
		last := &r.Devices[n-1]
		last.Health = status.Unhealthy
		last.Reason = "device is gone"
		last.Help = status.SectionAbsent
	}
	return r
}

func device(id, health string) status.Device {
	return status.Device{
		ID: id, Health: health, Slots: 1, Since: time.Now().Add(-3 * time.Hour),
		NUMA: []int{}, Nodes: []string{"/dev/ttyUSB0"}, Interfaces: []string{}, CDIDevices: []string{}, Mounts: []string{}, Held: []status.Holder{},
	}
}

// node is a status of a node with these resources.
func nodeOf(resources ...status.Resource) status.Status {
	return status.Status{
		Version: "v0.1.0", NodeName: "edge-1", Command: "serve", Started: time.Now().Add(-time.Hour), NotReady: []string{},
		Config:    status.Config{Path: "/etc/generic-dp", Hash: "0123456789abcdef", Loaded: time.Now(), Generation: 1, Problems: []string{}},
		Kubelet:   &status.Kubelet{Present: true},
		Resources: append([]status.Resource{}, resources...),
		Events:    []status.Event{{Time: time.Now(), Resource: "example.com/serial", ID: "x", What: "Unhealthy: device is gone"}},
	}
}

// wants fails for texts that the document lacks, or has although they begin with "!".
func wants(t *testing.T, document string, texts ...string) {
	t.Helper()
	_, document, _ = strings.Cut(document, `<div id="state">`)
	document, _, _ = strings.Cut(document, "<footer>")
	document = regexp.MustCompile(`<[^>]*>`).ReplaceAllString(document, "")
	for _, text := range texts {
		unwanted, isUnwanted := strings.CutPrefix(text, "!")
		if isUnwanted && strings.Contains(document, unwanted) {
			t.Errorf("the page has %q:\n%.2000s", unwanted, document)
		}
		if !isUnwanted && !strings.Contains(document, text) {
			t.Errorf("the page lacks %q:\n%.2000s", text, document)
		}
	}
}

// The page in a real browser, on a desktop and on a phone, in light and dark.
func TestPageInBrowser(t *testing.T) {
	broken := nodeOf(serials(3))
	broken.Config.Problems = []string{`gpu.toml:10:1: resource 2 ("gpu"): unknown key "cuont"`}
	held := serials(3)
	held.Devices[2].Held = []status.Holder{{ID: "usb:10c4:ea60:A002", Namespace: "home", Pod: "zigbee2mqtt", Container: "main"}}
	evil := device("<b>id</b>", status.Healthy)
	evil.Product = "Zigbee\u202eexe.\u200bstick"
	for name, page := range map[string]struct {
		status status.Status
		wants  []string
	}{
		"0-devices": {nodeOf(status.Resource{Name: "example.com/none", NoDevices: `glob "/dev/none*" fits nothing`, Devices: []status.Device{}}), []string{
			"Ready", "Devices0", "Without a device", "example.com/none", `glob "/dev/none*" fits nothing`, "What to do: generic-dp explain", "!problem",
		}},
		"3-devices": {nodeOf(held), []string{
			"1 problem", "Devices3", "Healthy2", "Unhealthy1", "usb:10c4:ea60:A000", "device is gone", "What to do: Plug it in again", "home/zigbee2mqtt/main", "Pods", "for 3 h",
		}},
		"200-devices": {nodeOf(serials(200)), []string{
			"Devices200", "1 of 200 Unhealthy", "usb:10c4:ea60:A199", "device is gone",
		}},
		"broken-configuration": {broken, []string{
			"2 problems", "Configuration on disk is broken", `unknown key "cuont"`,
		}},
		"hostile-texts": {nodeOf(status.Resource{Name: "example.com/evil", Registered: true, Devices: []status.Device{evil}}), []string{
			"&lt;b&gt;id&lt;/b&gt;", `Zigbee\u202eexe.\u200bstick`,
		}},
	} {
		for window, flags := range map[string][]string{
			"wide-light":  {"--window-size=1280,900"},
			"narrow-dark": {"--window-size=390,900", "--force-dark-mode", "--blink-settings=preferredColorScheme=0"},
		} {
			t.Run(name+"-"+window, func(t *testing.T) {
				wants(t, open(t, name+"-"+window, page.status, flags...), page.wants...)
			})
		}
	}
}
