package status_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"html"
	"net/http"
	"net/url"
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

// page is the status page at a path, without its style and script.
func page(t *testing.T, path string, s status.Status) string {
	t.Helper()
	resp, body := newServer(t, &shown{status: s}).get(path, "")
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
	body, _ = cut(t, body, "style")
	body, _ = cut(t, body, "script")
	return body
}

// cut cuts the text of an element out of a page, and returns both.
func cut(t *testing.T, page, element string) (rest, text string) {
	t.Helper()
	before, rest, hasBegin := strings.Cut(page, "<"+element+">")
	text, after, hasEnd := strings.Cut(rest, "</"+element+">")
	if !hasBegin || !hasEnd || text == "" {
		t.Fatalf("the page has no %s: %s", element, page)
	}
	return before + after, text
}

// A browser runs only the style and the script of the page: the policy has their hashes.
func TestPagePolicy(t *testing.T) {
	t.Parallel()
	resp, body := newServer(t, &state{}).get("/", "")
	policy := resp.Header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") {
		t.Errorf("policy %q", policy)
	}
	for _, element := range []string{"style", "script"} {
		_, text := cut(t, body, element)
		sum := sha256.Sum256([]byte(text))
		want := element + "-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
		if !strings.Contains(policy, want) {
			t.Errorf("policy %q, want %s in it", policy, want)
		}
	}
	if rest, _ := cut(t, body, "script"); strings.Contains(rest, "<script") || strings.Contains(rest, "style=") {
		t.Error("the page has a script or a style that the policy forbids")
	}
}

// counts are slots that are not held, by health.
func counts(healthy, unhealthy int) status.Slots {
	held := 0
	return status.Slots{Healthy: healthy, Unhealthy: unhealthy, Held: &held, Free: &healthy}
}

var volatile = regexp.MustCompile(`as of [-0-9: ]{19}|up for [0-9]+ \w+|for [0-9]+ d`)

// Problems come first, resources without devices come last.
func TestPage(t *testing.T) {
	t.Parallel()
	s := (&state{broken: errors.New(`unknown key "<script>"`)}).Status(t.Context())
	since := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	s.Resources = append([]status.Resource{
		{Name: "example.com/old", Retired: true, Registered: true, Slots: status.Slots{Retiring: 1}, Devices: []status.Device{
			{ID: "f", Health: status.Retiring, Reason: "resource was removed from the configuration", Help: status.SectionRetiring, Slots: 1, Since: since},
		}},
		{Name: "example.com/absent", NoDevices: `glob "/dev/none*" fits nothing`},
		{Name: "example.com/late", Reason: "refused", Slots: counts(1, 0), Devices: []status.Device{{ID: "c", Health: status.Healthy, Slots: 1}}},
		{Name: "example.com/serial", Registered: true, Slots: counts(2, 0), Devices: []status.Device{
			{ID: "d", Health: status.Healthy, Slots: 1, Nodes: []string{"/dev/d0", "/dev/d1"}}, {ID: "e", Health: status.Healthy, Slots: 1},
		}},
	}, s.Resources...)
	got := volatile.ReplaceAllString(page(t, "/", s), "TIME")
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
			ID: evil(), Product: evil(), Health: health, Reason: evil(), Nodes: []string{evil()}, Interfaces: []string{evil()}, CDIDevices: []string{evil()},
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
	got := page(t, "/", s)
	if strings.Contains(got, "<b onclick") || strings.Contains(got, `onclick="`) {
		t.Errorf("a text is not escaped:\n%s", got)
	}
	for i := range n {
		if want := fmt.Sprintf("%d&lt;b onclick=&#34;x&#34;&gt;&amp;&#39;", i+1); !strings.Contains(got, want) {
			t.Errorf("the page lacks text %d", i+1)
		}
	}
}

// Marks that reverse the order of text, and invisible characters, are shown as escapes.
func TestPageEscapesMarks(t *testing.T) {
	t.Parallel()
	device := status.Device{ID: "a", Health: status.Healthy, Slots: 1, Product: "Zigbee\u202eexe.\u200bstick"}
	got := page(t, "/", status.Status{Resources: []status.Resource{{Name: "example.com/a", Slots: counts(1, 0), Devices: []status.Device{device}}}})
	if !strings.Contains(got, `Zigbee\u202eexe.\u200bstick`) || strings.ContainsAny(got, "\u202e\u200b") {
		t.Errorf("the page has no escapes: %s", got)
	}
}

// The page of any status is bounded, and says how much it leaves out. Its summary counts all
// slots, and problems come first.
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
	got := page(t, "/", s)
	if len(got) > 600<<10 {
		t.Errorf("the page has %d bytes", len(got))
	}
	for _, want := range []string{
		"and 92 more", "and 42 more", "more devices: filter them, or see /status.json", "2 more resources: filter them, or see /status.json",
		"1 of 5000 Unhealthy", "device is gone", "<dt>Healthy</dt><dd>5000</dd>",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// serials is a resource with n devices, of which only the last one is Unhealthy.
func serials(n int) status.Resource {
	r := status.Resource{Name: "example.com/serial", Registered: true, Slots: counts(n-1, 1)}
	for i := range n {
		r.Devices = append(r.Devices, status.Device{ID: fmt.Sprintf("usb:%d", i), Health: status.Healthy, Slots: 1})
	}
	last := &r.Devices[n-1]
	last.Health = status.Unhealthy
	last.Reason = "device is gone"
	last.Help = status.SectionAbsent
	return r
}

// A problem among many devices is visible although the resource is folded, with its reason and a
// link to what explains it.
func TestPageShowsProblems(t *testing.T) {
	t.Parallel()
	got := page(t, "/", status.Status{Version: "v1.2.3", Resources: []status.Resource{serials(200)}})
	if strings.Contains(got, "<details data-key=\"example.com/serial\" open") {
		t.Error("200 devices are unfolded")
	}
	_, shown, _ := strings.Cut(got, `<tr class="Unhealthy shown">`)
	shown, _, _ = strings.Cut(shown, "</tr>")
	for _, want := range []string{"usb:199", "device is gone", "https://github.com/generic-dp/generic-dp/blob/v1.2.3/docs/troubleshooting.md#the-device-is-absent"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the row of the problem lacks %q: %s", want, shown)
		}
	}
	if n := strings.Count(got, `shown">`); n != 1 {
		t.Errorf("%d rows are shown in a folded resource, want 1", n)
	}
}

// What an edit of the configuration removes is neither Unhealthy nor a problem.
func TestPageCountsRetiringDevicesApart(t *testing.T) {
	t.Parallel()
	retiring := status.Resource{Name: "example.com/old", Retired: true, Slots: status.Slots{Retiring: 2}, Devices: []status.Device{
		{ID: "a", Health: status.Retiring, Reason: "resource was removed from the configuration", Slots: 2},
	}}
	healthy := status.Resource{Name: "example.com/new", Registered: true, Slots: counts(1, 0), Devices: []status.Device{{ID: "b", Health: status.Healthy, Slots: 1}}}
	s := status.Status{Resources: []status.Resource{retiring, healthy}}
	got := page(t, "/", s)
	for _, want := range []string{"<dt>Unhealthy</dt><dd>0</dd>", `<dt>Retiring</dt><dd class="soft">1</dd>`} {
		if !strings.Contains(got, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Index(got, "example.com/old") < strings.Index(got, "example.com/new") {
		t.Error("a retiring resource comes before a healthy one")
	}
	_, metrics := newServer(t, &shown{status: s}).get("/metrics", "")
	for _, want := range []string{
		`generic_dp_devices{health="Unhealthy",resource="example.com/old"} 0`,
		`generic_dp_devices{health="Retiring",resource="example.com/old"} 1`,
		`generic_dp_slots{health="Unhealthy",resource="example.com/old"} 0`,
		`generic_dp_slots{health="Retiring",resource="example.com/old"} 2`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if strings.Contains(metrics, `health="Retiring",resource="example.com/new"`) {
		t.Error("/metrics counts retiring devices of a resource without any")
	}
}

// A reason that all resources share appears once.
func TestPageShowsACommonReasonOnce(t *testing.T) {
	t.Parallel()
	const reason = "the kubelet's socket does not exist"
	s := status.Status{Kubelet: &status.Kubelet{}}
	for _, name := range []string{"example.com/a", "example.com/b"} {
		s.NotReady = append(s.NotReady, status.NotRegistered(name, reason))
		s.Resources = append(s.Resources, status.Resource{
			Name: name, Reason: reason, Slots: counts(1, 0), Devices: []status.Device{{ID: name, Health: status.Healthy, Slots: 1}},
		})
	}
	s.NotReady = append(s.NotReady, "the disk is full")
	escaped := html.EscapeString(reason)
	got := page(t, "/", s)
	if strings.Count(got, escaped) != 1 || !strings.Contains(got, "no resource is registered: "+escaped) || !strings.Contains(got, "the disk is full") {
		t.Errorf("want the reason once, and the other line: %s", got)
	}
	s.Resources[1].Reason = "refused"
	s.NotReady[1] = status.NotRegistered("example.com/b", "refused")
	got = page(t, "/", s)
	if strings.Count(got, escaped) != 2 || strings.Count(got, "refused") != 2 {
		t.Errorf("want each reason in the alert and in its row: %s", got)
	}
}

// The filter selects resources, devices, pods and events by any text. Numbers stay.
func TestPageFilter(t *testing.T) {
	t.Parallel()
	s := (&state{}).Status(t.Context())
	s.Resources = append(s.Resources, serials(20))
	for _, tc := range []struct {
		name, filter  string
		want, without []string
	}{
		{name: "none", want: []string{"example.com/gpu", "usb:0<", "usb:19<", "default", "Events"}},
		{name: "resource", filter: "serial", want: []string{"usb:0<", "usb:19<"}, without: []string{"example.com/gpu", "Events", "Pods"}},
		{name: "ID", filter: "USB:19", want: []string{"example.com/serial", "usb:19<"}, without: []string{"usb:0<", "example.com/gpu"}},
		{name: "pod", filter: "default/p", want: []string{"example.com/gpu", "Pods"}, without: []string{"example.com/serial", "<code>b<"}},
		{name: "reason", filter: "gone", want: []string{"<code>b<", "usb:19<", "Events"}, without: []string{"usb:0<", "Pods"}},
		{name: "node", filter: "ttyusb0", want: []string{"/dev/ttyUSB0"}, without: []string{"<code>b<"}},
		{name: "nothing", filter: "<b>", want: []string{"Nothing matches", `value="&lt;b&gt;"`, "/?filter=%3Cb%3E"}, without: []string{"<b>", "example.com"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			got := page(t, "/?"+url.Values{"filter": {tc.filter}}.Encode(), s)
			for _, want := range append(tc.want, "<dt>Devices</dt><dd>22</dd>") {
				if !strings.Contains(got, want) {
					t.Errorf("the page lacks %q:\n%s", want, got)
				}
			}
			for _, other := range tc.without {
				if strings.Contains(got, other) {
					t.Errorf("the page has %q:\n%s", other, got)
				}
			}
		})
	}
}

// The pods that hold devices have a table. A pod with a problem comes first.
func TestPageByPod(t *testing.T) {
	t.Parallel()
	held := func(id, health string, pods ...string) status.Device {
		d := status.Device{ID: id, Health: health, Slots: len(pods)}
		for i, pod := range pods {
			d.Held = append(d.Held, status.Holder{ID: fmt.Sprint(id, "::", i), Namespace: "lab", Pod: pod, Container: "main"})
		}
		return d
	}
	got := page(t, "/", status.Status{Resources: []status.Resource{
		{Name: "example.com/a", Devices: []status.Device{held("x", status.Healthy, "one", "two")}},
		{Name: "example.com/b", Devices: []status.Device{held("y", status.Unhealthy, "two")}},
	}})
	_, pods, _ := strings.Cut(got, "<h2>Pods</h2>")
	if !strings.Contains(pods, "2 pods, 3 slots") {
		t.Errorf("pods: %s", pods)
	}
	two := strings.Index(pods, `rowspan="2"><span>two</span>`)
	one := strings.Index(pods, `rowspan="1"><span>one</span>`)
	if two < 0 || one < two {
		t.Errorf("want pod two with two rows, then pod one: %s", pods)
	}
}

// A column without content is left out.
func TestPageHasNoEmptyColumns(t *testing.T) {
	t.Parallel()
	device := status.Device{ID: "a", Health: status.Healthy, Slots: 1, Nodes: []string{"/dev/a"}}
	heads := regexp.MustCompile(`<th scope="col">([^<]*)</th>`)
	for _, tc := range []struct {
		device status.Device
		slots  status.Slots
		want   []string
	}{
		{device, status.Slots{Healthy: 1}, []string{"Resource, ID", "Health", "Slots", "Nodes", "Reason"}},
		{status.Device{ID: "a", Health: status.Healthy, Slots: 1, NUMA: []int{1}}, counts(1, 0), []string{"Resource, ID", "Health", "Slots", "Held by", "NUMA", "Reason"}},
	} {
		got := page(t, "/", status.Status{Resources: []status.Resource{{Name: "example.com/a", Slots: tc.slots, Devices: []status.Device{tc.device}}}})
		var titles []string
		for _, m := range heads.FindAllStringSubmatch(got, -1) {
			titles = append(titles, m[1])
		}
		if diff := cmp.Diff(tc.want, titles); diff != "" {
			t.Errorf("columns (-want +got):\n%s", diff)
		}
	}
}

// Each link leads to a heading of the page about troubleshooting.
func TestSectionsExist(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		title := strings.TrimLeft(strings.TrimSpace(line), "#")
		if isHeading := strings.HasPrefix(line, "#"); isHeading {
			anchor := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-")
			anchors[anchor] = true
		}
	}
	source, err := os.ReadFile("help.go")
	if err != nil {
		t.Fatal(err)
	}
	sections := regexp.MustCompile(`Section = "([^"]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(sections) < 8 {
		t.Fatalf("sections %q", sections)
	}
	for _, m := range sections {
		if !anchors[m[1]] {
			t.Errorf("docs/troubleshooting.md has no heading for #%s", m[1])
		}
	}
	for version, ref := range map[string]string{"v0.1.0": "v0.1.0", "0.1.0": "v0.1.0", "v0.1.0-3-g1fa6dbd": "main", "unknown": "main", "": "main"} {
		if got := status.SectionAbsent.URL(version); !strings.Contains(got, "/blob/"+ref+"/docs/") {
			t.Errorf("version %q links to %s, want %s", version, got, ref)
		}
	}
}
