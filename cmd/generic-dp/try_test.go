package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// lines is a writer that sends each write to a channel.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// startTry runs try with a configuration until the test ends.
func startTry(t *testing.T, args ...string) lines {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	out, code := make(lines, 100), make(chan int, 1)
	args = append([]string{"try", "--sysfs", "../../testdata/machines/vm-virtio.txtar"}, args...)
	go func() { code <- run(ctx, args, out, io.Discard) }()
	t.Cleanup(func() {
		stop()
		if got := <-code; got != 0 {
			t.Errorf("try: status %d", got)
		}
	})
	return out
}

// try --listen serves the status page without a cluster.
func TestTryServesThePage(t *testing.T) {
	t.Parallel()
	// The kernel chooses the port.
	out := startTry(t, "--listen", "127.0.0.1:0", "--config", "../../examples/configs/quickstart.toml")
	line := <-out
	url, isPrinted := strings.CutPrefix(strings.TrimSpace(line), "status page: ")
	if !isPrinted {
		t.Fatalf("try printed %q", line)
	}
	for path, want := range map[string]string{"": "<!DOCTYPE html>", "status.json": "example.com/null"} {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s: %v, want %q\n%.500s", resp.Request.URL, err, want, body)
		}
	}
}
