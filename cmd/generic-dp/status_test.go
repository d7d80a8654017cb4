package main

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/status"
)

// instance is a running instance.
type instance struct{}

func (instance) Alive() error          { return nil }
func (instance) Ready() error          { return nil }
func (instance) Config() status.Config { return status.Config{} }

func (instance) LeftOut() status.LeftOut { return status.LeftOut{} }
func (instance) Status(context.Context) status.Status {
	at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	return status.Status{
		Version: "v1", Command: "serve", Started: at,
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
		Events: []status.Event{
			{Time: at, Resource: "example.com/a", ID: "usb:22", What: "Unhealthy: device is gone"},
			{Time: at, Resource: "example.com/a", What: "registered (start)"},
			{Time: at.Add(time.Second), Resource: "example.com/a", What: "registered (start)"},
		},
	}
}

const wantStatus = `generic-dp v1, not ready, serve since 2026-11-20 12:00:00
configuration /etc/generic-dp, generation 1, loaded 2026-11-20 12:00:00
Not ready:
  resource example.com/b is not registered: refused

example.com/a: 1/4 used, 2 unhealthy
  Unhealthy, 0/2 used: usb:22
    device is gone
  Healthy, 1/2 used: usb:1
    /dev/ttyUSB0
    NUMA 0,1
    held by d/p/c

example.com/c: 3/4 used
  Healthy, 3/4 used: fuse
    /dev/fuse
    held by d/p/c x2
    held by d/q/c

example.com/b: no device
  usb.id "10c4:ea61" fits nothing: nearest 10c4:ea60 on /dev/ttyUSB1, a long way
    down

2026-11-20 12:00:00 example.com/a usb:22 Unhealthy: device is gone
2026-11-20 12:00:01 example.com/a registered (start) x2
`

func TestStatus(t *testing.T) {
	t.Parallel()
	l, err := status.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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
		if code := run(t.Context(), []string{"status", "--listen", address}, &out, &stderr); code != 0 || out.String() != wantStatus {
			t.Errorf("status --listen %s: %d %s\n%s\nwant\n%s", address, code, stderr.String(), out.String(), wantStatus)
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
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	go func() {
		if conn, err := other.Accept(); err == nil {
			_, _ = conn.Write([]byte("SSH-2.0-OpenSSH\r\n"))
			_ = conn.Close()
		}
	}()
	for address, want := range map[string]string{
		nobody:                "error: --listen: no instance at " + nobody + ": connection refused\n  hint: ",
		other.Addr().String(): "error: --listen: no generic-dp answers at ",
		"9418":                "error: --listen: address 9418: missing port",
	} {
		var out, stderr strings.Builder
		if code := run(t.Context(), []string{"status", "--listen", address}, &out, &stderr); code != 1 || !strings.Contains(stderr.String(), want) {
			t.Errorf("status --listen %s: %d %q, want %q", address, code, stderr.String(), want)
		}
	}
}
