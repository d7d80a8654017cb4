package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/status"
)

// instance is a running instance.
type instance struct{}

func (instance) Alive() error { return nil }
func (instance) Ready() error { return nil }
func (instance) Status(context.Context) status.Status {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var events []status.Event
	for i := range 11 {
		events = append(events, status.Event{Time: at, Resource: "example.com/a", What: fmt.Sprintf("event %d", i)})
	}
	return status.Status{
		Version: "v1", Command: "serve", NodeName: "n1", Started: at,
		Config:   status.Config{Path: "/etc/generic-dp", Generation: 1, Loaded: at},
		NotReady: []string{"resource example.com/b is not registered: refused"},
		Resources: []status.Resource{
			{Name: "example.com/b", NoDevices: `usb.id "10c4:ea61" fits nothing: nearest 10c4:ea60 on /dev/ttyUSB1, a long way down`},
			{Name: "example.com/c", Registered: true, Slots: status.Slots{Healthy: 4, Held: new(3)}, Devices: []status.Device{
				{ID: "fuse", Health: status.Healthy, Slots: 4, Nodes: []string{"/dev/fuse"}, Held: []status.Holder{
					{ID: "fuse", Namespace: "d", Pod: "p", Container: "c"}, {ID: "fuse::1", Namespace: "d", Pod: "p", Container: "c"}, {ID: "fuse::3", Namespace: "d", Pod: "q", Container: "c"},
				}},
			}},
			{Name: "example.com/a", Slots: status.Slots{Healthy: 2, Unhealthy: 2, Held: new(1)}, Devices: []status.Device{
				{ID: "usb:1", Health: status.Healthy, Slots: 2, NUMA: []int{0, 1}, Nodes: []string{"/dev/ttyUSB0"}, Held: []status.Holder{{ID: "usb:1::1", Namespace: "d", Pod: "p", Container: "c"}}},
				{ID: "usb:22", Health: status.Unhealthy, Slots: 2, Reason: "device is gone"},
			}},
		},
		Events: append(events,
			status.Event{Time: at, Resource: "example.com/a", ID: "usb:22", What: "Unhealthy: device is gone"},
			status.Event{Time: at, Resource: "example.com/a", What: "registered (start)"},
			status.Event{Time: at.Add(time.Second), Resource: "example.com/a", What: "registered (start)"},
		),
	}
}

// wantStatus has the times of UTC.
const wantStatus = `generic-dp v1 on n1, not ready, serve since 2026-11-20 12:00:00 UTC
configuration /etc/generic-dp, generation 1, loaded 2026-11-20 12:00:00 UTC

2026-11-20 12:00:00 UTC example.com/a event 4
2026-11-20 12:00:00 UTC example.com/a event 5
2026-11-20 12:00:00 UTC example.com/a event 6
2026-11-20 12:00:00 UTC example.com/a event 7
2026-11-20 12:00:00 UTC example.com/a event 8
2026-11-20 12:00:00 UTC example.com/a event 9
2026-11-20 12:00:00 UTC example.com/a event 10
2026-11-20 12:00:00 UTC example.com/a usb:22 Unhealthy: device is gone
2026-11-20 12:00:00 UTC example.com/a registered (start)
2026-11-20 12:00:01 UTC example.com/a registered (start)

example.com/b: no device
  usb.id "10c4:ea61" fits nothing: nearest 10c4:ea60 on /dev/ttyUSB1, a long way
    down

example.com/c: 3 of 4 slots used
  Healthy, 3 of 4 slots used: fuse
    /dev/fuse
    held by d/p/c, d/p/c (slot 1), d/q/c (slot 3)

example.com/a: 1 of 4 slots used, 2 slots unhealthy
  Healthy, 1 of 2 slots used: usb:1
    /dev/ttyUSB0
    NUMA 0,1
    held by d/p/c (slot 1)
  Unhealthy, 0 of 2 slots used: usb:22
    device is gone

Not ready:
  resource example.com/b is not registered: refused
`

// 100 slots of one device are not 100 lines.
func TestStatusOfManyHolders(t *testing.T) {
	t.Parallel()
	d := status.Device{ID: "fuse", Health: status.Healthy, Slots: 100}
	for i := range 100 {
		d.Held = append(d.Held, status.Holder{ID: fmt.Sprintf("fuse::%d", i+1), Namespace: "d", Pod: fmt.Sprintf("p%d", i), Container: "c"})
	}
	var out strings.Builder
	statusText{&out}.device(d)
	const want = `    held by d/p0/c (slot 1), d/p1/c (slot 2), d/p2/c (slot 3), d/p3/c (slot 4),
      d/p4/c (slot 5), d/p5/c (slot 6), d/p6/c (slot 7), d/p7/c (slot 8), and 92
      more
`
	if out.String() != want {
		t.Errorf("100 holders: %s\nwant %s", out.String(), want)
	}
}

// The names of nodes may have commas.
func TestDevicesWithCommas(t *testing.T) {
	t.Parallel()
	d := status.Device{ID: "a", Health: status.Healthy, Slots: 1, Nodes: []string{"/dev/a,1", "/dev/b"}}
	r := report{Resources: []resourceReport{{Name: "example.com/a", Devices: []deviceReport{{Device: d}}}}}
	var out strings.Builder
	must(t, r.Table(&out, false))
	const want = `RESOURCE       HEALTH   SLOTS  NUMA
example.com/a  Healthy  1      -
    a /dev/a,1 /dev/b
`
	if out.String() != want {
		t.Errorf("names with commas:\n%s\nwant\n%s", out.String(), want)
	}
	out.Reset()
	must(t, r.Table(&out, true))
	if text := out.String(); !strings.Contains(text, ` /dev/a\u002c1,/dev/b `) {
		t.Errorf("names with commas in a wide table:\n%s", text)
	}
}

// inLocalTime replaces the times of a text by times of the zone of the test.
func inLocalTime(text string) string {
	for _, utc := range []string{"2026-11-20 12:00:00 UTC", "2026-11-20 12:00:01 UTC"} {
		at, _ := time.Parse(time.DateTime+" MST", utc)
		text = strings.ReplaceAll(text, utc, at.Local().Format(time.DateTime+" MST"))
	}
	return text
}

func TestStatus(t *testing.T) {
	t.Parallel()
	l, err := status.Listen("127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- status.New(instance{}).Serve(ctx, l) }()
	defer func() {
		cancel()
		<-ended
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, address := range []string{l.Addr().String(), ":" + port, "0.0.0.0:" + port} {
		var out, stderr strings.Builder
		want := inLocalTime(wantStatus)
		if code := run(t.Context(), []string{"status", "--listen", address}, &out, &stderr); code != 0 || out.String() != want {
			t.Errorf("status --listen %s: %d %s\n%s\nwant\n%s", address, code, stderr.String(), out.String(), want)
		}
	}
	var out, stderr strings.Builder
	var s status.Status
	if code := run(t.Context(), []string{"status", "-ojson", "--listen", ":" + port}, &out, &stderr); code != 0 ||
		json.Unmarshal([]byte(out.String()), &s) != nil || len(s.Resources) != 3 {
		t.Errorf("status -ojson: %d %s\n%s", code, stderr.String(), out.String())
	}
}

func TestStatusWithoutInstance(t *testing.T) {
	t.Parallel()
	const nobody = "127.0.0.1:1" // tcpmux, never an ephemeral port
	other, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer other.Close()
	go func() {
		if conn, err := other.Accept(); err == nil {
			_, _ = conn.Write([]byte("SSH-2.0-OpenSSH\r\n"))
			_ = conn.Close()
		}
	}()
	for _, c := range []struct {
		address string
		code    int
		want    string
	}{
		{nobody, 1, "error: --listen: no instance at " + nobody + ": connection refused\n  hint: "},
		{other.Addr().String(), 1, "error: --listen: no generic-dp answers at "},
		{"9418", 2, "error: invalid argument \"9418\" for \"--listen\" flag: want HOST:PORT, such as 127.0.0.1:9418\n"},
		{"localhost", 2, "error: invalid argument \"localhost\" for \"--listen\" flag: want HOST:PORT, such as 127.0.0.1:9418\n"},
	} {
		var out, stderr strings.Builder
		code := run(t.Context(), []string{"status", "--listen", c.address}, &out, &stderr)
		if code != c.code || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("status --listen %s: %d %q, want %d %q", c.address, code, stderr.String(), c.code, c.want)
		}
	}
}
