package status_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/status"
)

// shown is a program with this status.
type shown struct {
	state
	status status.Status
}

func (s *shown) Status(context.Context) status.Status { return s.status }

// The page is static: no text of a device is in it. A browser runs only its style and script.
func TestPage(t *testing.T) {
	t.Parallel()
	resp, body := newServer(t, &state{}).get("/", "")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
	source, err := os.ReadFile("page.html")
	must(t, err)
	if body != string(source) {
		t.Error("the page is not page.html")
	}
	policy := resp.Header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src 'sha256-") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	_, without, _ := strings.Cut(body, "<noscript>")
	for _, want := range []string{"This page needs JavaScript", "/status.json", "/metrics"} {
		if !strings.Contains(without, want) {
			t.Errorf("without JavaScript, the page lacks %q", want)
		}
	}
	for _, unsafe := range []string{"innerHTML", "insertAdjacent", "document.write", "style="} {
		if strings.Contains(body, unsafe) {
			t.Errorf("the page has %s: texts of devices must not be parsed", unsafe)
		}
	}
}

// The page gets its time, its alerts and the address of the documentation with the status.
func TestStatusForThePage(t *testing.T) {
	t.Parallel()
	s := status.Status{Version: "v1.2.3", NotReady: []string{"the disk is full"}}
	_, body := newServer(t, &shown{status: s}).get("/status.json", "")
	var got struct {
		Version string
		Now     string
		Alerts  []struct{ Heading string }
		Docs    string
	}
	must(t, json.Unmarshal([]byte(body), &got))
	isComplete := got.Version == "v1.2.3" && got.Now != "" && len(got.Alerts) == 1 && got.Alerts[0].Heading == "Not ready"
	if !isComplete || !strings.Contains(got.Docs, "/blob/v1.2.3/docs/") {
		t.Errorf("%s", body)
	}
}

// Each link leads to a heading of the page about troubleshooting, and has a text of its own.
func TestSectionsExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	must(t, err)
	anchors := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		title := strings.TrimLeft(strings.TrimSpace(line), "#")
		if isHeading := strings.HasPrefix(line, "#"); isHeading {
			anchor := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-")
			anchors[anchor] = true
		}
	}
	source, err := os.ReadFile("help.go")
	must(t, err)
	_, page := newServer(t, &state{}).get("/", "")
	sections := regexp.MustCompile(`Section = "([^"]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(sections) < 8 {
		t.Fatalf("sections %q", sections)
	}
	for _, m := range sections {
		if !anchors[m[1]] {
			t.Errorf("docs/troubleshooting.md has no heading for #%s", m[1])
		}
		if !strings.Contains(page, fmt.Sprintf("\n  %q: \"", m[1])) {
			t.Errorf("page.html does not say what to do about #%s", m[1])
		}
	}
	for version, ref := range map[string]string{"v0.1.0": "v0.1.0", "0.1.0": "v0.1.0", "v0.1.0-3-g1fa6dbd": "main", "unknown": "main", "": "main"} {
		if got := status.SectionAbsent.URL(version); !strings.Contains(got, "/blob/"+ref+"/docs/") {
			t.Errorf("version %q links to %s, want %s", version, got, ref)
		}
	}
}

// Devices that have left the lists are shown for a day, unless they come back or an edit has
// removed them.
func TestGoneDevices(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	left := func(id, reason string, ago time.Duration) status.Event {
		return status.Event{
			Time:     now.Add(-ago),
			Resource: "example.com/zigbee",
			ID:       id,
			What:     status.LeftList + reason,
		}
	}
	s := status.Status{
		Events: []status.Event{
			left("old", ledger.ReasonGone, 25*time.Hour),
			left("gone", ledger.ReasonGone, 3*time.Hour),
			left("back", ledger.ReasonGone, 2*time.Hour),
			left("gone", ledger.ReasonGone, time.Hour),
			left("removed", ledger.ReasonRemoved, time.Hour),
		},
		Resources: []status.Resource{{
			Name:    "example.com/zigbee",
			Devices: []status.Device{{ID: "back", Health: status.Healthy}},
		}},
	}
	var lines []string
	for _, a := range s.Alerts(now) {
		lines = append(lines, append([]string{a.Heading}, a.Lines...)...)
	}
	want := []string{"Gone in the last 24 h", "example.com/zigbee gone, at 2026-11-27 11:00:00 UTC"}
	if !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
}
