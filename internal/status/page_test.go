package status_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/internal/status"
)

var update = flag.Bool("update", false, "write testdata/page.golden")

// shown is a program with this status.
type shown struct {
	state
	status status.Status
}

func (s *shown) Status(context.Context) status.Status { return s.status }

// page is the status page without its style.
func page(t *testing.T, s status.Status) string {
	t.Helper()
	resp, body := newServer(t, &shown{status: s}).get("/", "")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" ||
		resp.Header.Get("Content-Security-Policy") != "default-src 'none'; style-src 'unsafe-inline'" {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
	before, rest, _ := strings.Cut(body, "<style>")
	_, after, ok := strings.Cut(rest, "</style>")
	if !ok {
		t.Fatalf("the page has no style: %s", body)
	}
	return before + after
}

// counts are slots that are not held, by health.
func counts(healthy, unhealthy int) status.Slots {
	held := 0
	return status.Slots{Healthy: healthy, Unhealthy: unhealthy, Held: &held, Free: &healthy}
}

var volatile = regexp.MustCompile(`as of [-0-9: ]{19}|uptime [0-9hms.]+`)

// Problems come first and are unfolded, resources without devices come last.
func TestPage(t *testing.T) {
	t.Parallel()
	s := (&state{broken: errors.New(`unknown key "<script>"`)}).Status(t.Context())
	s.Resources = append([]status.Resource{
		{Name: "example.com/absent", NoDevices: `glob "/dev/none*" fits nothing`},
		{Name: "example.com/late", Reason: "refused", Slots: counts(1, 0), Devices: []status.Device{{ID: "c", Health: status.Healthy, Slots: 1}}},
		{Name: "example.com/serial", Registered: true, Slots: counts(2, 0), Devices: []status.Device{
			{ID: "d", Health: status.Healthy, Slots: 1, Nodes: []string{"/dev/d0", "/dev/d1"}}, {ID: "e", Health: status.Healthy, Slots: 1},
		}},
	}, s.Resources...)
	got := volatile.ReplaceAllString(page(t, s), "TIME")
	if *update {
		if err := os.WriteFile("testdata/page.golden", []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/page.golden")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the page differs from testdata/page.golden, see -update (-want +got):\n%s", diff)
	}
}

// Each text of a status is on the page, escaped.
func TestPageEscapes(t *testing.T) {
	t.Parallel()
	n := 0
	evil := func() string {
		n++
		return fmt.Sprintf(`%d<b onclick="x">&'`, n)
	}
	problem := func() []status.Problem { return []status.Problem{{Subject: evil(), Reason: evil()}} }
	device := func(health string) status.Device {
		return status.Device{
			ID: evil(), Health: health, Reason: evil(), Nodes: []string{evil()}, Interfaces: []string{evil()}, CDIDevices: []string{evil()},
			Held: []status.Holder{{Namespace: evil(), Pod: evil(), Container: evil()}},
		}
	}
	s := status.Status{
		Version: evil(), NodeName: evil(), Command: evil(), NotReady: []string{evil()}, Kubelet: &status.Kubelet{},
		Config:   status.Config{Path: evil(), Hash: "", Problems: []string{evil()}},
		Degraded: problem(), Problems: problem(), HeldUnknown: evil(),
		Resources: []status.Resource{
			{Name: evil(), Reason: evil(), Devices: []status.Device{device(status.Healthy), device(status.Unhealthy)}},
			{Name: evil(), Registered: true, Devices: []status.Device{{Health: status.Healthy, Mounts: []string{evil()}}}},
			{Name: evil(), NoDevices: evil()},
		},
		Events: []status.Event{{Resource: evil(), ID: evil(), What: evil()}},
	}
	got := page(t, s)
	if strings.Contains(got, "<b onclick") || strings.Contains(got, `onclick="`) {
		t.Errorf("a text is not escaped:\n%s", got)
	}
	for i := range n {
		if want := fmt.Sprintf("%d&lt;b onclick=&#34;x&#34;&gt;&amp;&#39;", i+1); !strings.Contains(got, want) {
			t.Errorf("the page lacks text %d", i+1)
		}
	}
}

// The page of any status is bounded, and says how much it leaves out. Its summary counts all
// slots, and problems come first.
// Marks that reverse the order of text, and invisible characters, are shown as escapes.
func TestPageEscapesMarks(t *testing.T) {
	t.Parallel()
	device := status.Device{ID: "a", Health: status.Healthy, Slots: 1, Product: "Zigbee\u202eexe.\u200bstick"}
	got := page(t, status.Status{Resources: []status.Resource{{Name: "example.com/a", Slots: counts(1, 0), Devices: []status.Device{device}}}})
	if !strings.Contains(got, `Zigbee\u202eexe.\u200bstick`) || strings.ContainsAny(got, "\u202e\u200b") {
		t.Errorf("the page has no escapes: %s", got)
	}
}

func TestPageIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	many := status.Resource{Name: "example.com/many", Registered: true, Slots: counts(4999, 1)}
	for i := range 5000 {
		many.Devices = append(many.Devices, status.Device{ID: fmt.Sprint(long, i), Health: status.Healthy, Slots: 1, Nodes: strings.Fields(strings.Repeat(long+" ", 50))})
	}
	many.Devices[4999].Health = status.Unhealthy
	many.Devices[4999].Reason = "device is gone"
	s := status.Status{Started: time.Now(), Resources: []status.Resource{many, {Name: "example.com/next", Registered: true, Devices: many.Devices[:1]}, {Name: "example.com/none"}}}
	for range 100 {
		s.NotReady = append(s.NotReady, long)
	}
	got := page(t, s)
	if len(got) > 600<<10 {
		t.Errorf("the page has %d bytes", len(got))
	}
	for _, want := range []string{
		"and 92 more", "and 42 more", "more devices: see /status.json", "2 more resources: see /status.json", "1 of 5000 Unhealthy", "device is gone", "<dt>Healthy</dt><dd>4999</dd>",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}
