package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// lines is a writer that sends each write to a channel.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// try --listen serves the status page without a cluster.
func TestTryServesThePage(t *testing.T) {
	t.Parallel()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	out, code := make(lines, 100), make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"try", "--listen", address, "--config", "../../examples/configs/quickstart.toml", "--sysfs", "../../testdata/machines/vm-virtio.txtar"}, out, io.Discard)
	}()
	defer func() {
		stop()
		if got := <-code; got != 0 {
			t.Errorf("try: status %d", got)
		}
	}()
	if got := <-out; got != "status page: http://"+address+"/\n" {
		t.Fatalf("try printed %q", got)
	}
	resp, err := http.Get("http://" + address + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), "example.com/null") {
		t.Errorf("page: %v\n%s", err, body)
	}
}

// try prints a change of the number of slots alone.
func TestTryPrintsSlots(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.toml")
	configure := func(count int) {
		place(t, file, fmt.Sprintf("domain = \"example.com\"\n[[resource]]\nname = \"null\"\ncount = %d\nmatch.glob = \"/dev/null\"\n", count))
	}
	configure(2)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	out, code := make(lines, 100), make(chan int, 1)
	go func() {
		code <- run(ctx, []string{"try", "--config", file, "--sysfs", "../../testdata/machines/vm-virtio.txtar"}, out, io.Discard)
	}()
	defer func() {
		stop()
		if got := <-code; got != 0 {
			t.Errorf("try: status %d", got)
		}
	}()
	wait := func(want string) {
		t.Helper()
		for {
			select {
			case line := <-out:
				if strings.Contains(line, want) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("try does not print %q", want)
			}
		}
	}
	wait("watching for changes")
	configure(3)
	wait("changed  example.com/null null  Healthy, 3 slots  /dev/null")
}
