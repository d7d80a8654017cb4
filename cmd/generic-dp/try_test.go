package main

import (
	"context"
	"io"
	"net"
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
