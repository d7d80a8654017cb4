package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/tools/answer"
)

// diff names the containers that hold what an edit takes away, and no others.
func TestDiffNamesHolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const stick, other = "usb:0403:6001:A10K5XYZ", "usb:10c4:ea60:port:0000:00:14.0:2.3"
	holding := serveText(t, `{"resources": [{"name": "example.com/serial", "devices": [
		{"id": "`+stick+`", "held": [{"id": "`+stick+`", "pod": "p"}]},
		{"id": "`+other+`", "held": [{"id": "`+other+`::1", "pod": "p"}, {"id": "`+other+`", "pod": "q"}]}]}]}`)
	// An instance that does not know the holders is not an instance without holders.
	ignorant := serveText(t, `{"held_unknown": "the kubelet is silent", "resources": []}`)
	const head = "domain = \"example.com\"\n[[resource]]\nname = "
	place(t, dir+"/old.toml", head+`"serial"`+"\ncount = 2\nmatch = { usb = {}, glob = \"/dev/ttyUSB*\" }\n")
	place(t, dir+"/new.toml", head+`"ftdi"`+"\nmatch.usb.id = \"0403:*\"\n"+"[[resource]]\nname = \"serial\"\nmatch = { usb = {}, glob = \"/dev/ttyUSB*\" }\n")
	check := func(listen string, more ...string) string {
		args := []string{"check", dir + "/new.toml", "--against", dir + "/old.toml", "--sysfs", "../../testdata/machines/desktop-xhci.txtar", "--listen", listen}
		return command(t, append(args, more...)...)
	}
	const nobody = "127.0.0.1:1" // tcpmux
	for listen, want := range map[string]string{nobody: "no instance at", ignorant: "the kubelet is silent"} {
		if text := check(listen); !strings.Contains(text, "Holders are unknown: ") || !strings.Contains(text, want) {
			t.Errorf("%s\nlacks %q", text, want)
		}
	}
	text := check(holding, "-o", "json")
	var all answer.Check
	must(t, json.Unmarshal([]byte(text), &all))
	r := all.Files[0].Against
	held := map[string]string{}
	for _, c := range r.Changes {
		held[string(c.Change)+" "+c.Old.ID] = ""
		for _, h := range c.Held {
			held[string(c.Change)+" "+c.Old.ID] += h.Pod + " " + h.ID
		}
	}
	if r.HeldUnknown != "" || held["moved "+stick] != "p "+stick || held["slots "+other] != "p "+other+"::1" {
		t.Errorf("held: %v, %q\n%s", held, r.HeldUnknown, text)
	}
}

// serveText answers every request with a text, and returns the address.
func serveText(t *testing.T, text string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
