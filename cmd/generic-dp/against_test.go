package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
	"github.com/generic-dp/generic-dp/internal/tools/answer"
)

// diff names the containers that hold what an edit takes away, and no others.
func TestDiffNamesHolders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kubelet := kubelettest.New(kubelettest.Options{Dir: dir + "/kubelet", PodResources: dir + "/pods.sock"})
	if err := kubelet.Start(); err != nil {
		t.Fatal(err)
	}
	defer kubelet.Stop()
	const stick, other = "usb:0403:6001:A10K5XYZ", "usb:10c4:ea60:port:0000:00:14.0:2.3"
	kubelet.Hold(kubelettest.Request{Namespace: "default", Pod: "p", Container: "c", Resource: "example.com/serial"}, stick, other+"::1")
	kubelet.Hold(kubelettest.Request{Namespace: "default", Pod: "q", Container: "c", Resource: "example.com/serial"}, other)
	const head = "domain = \"example.com\"\n[[resource]]\nname = "
	place(t, dir+"/old.toml", head+`"serial"`+"\ncount = 2\nmatch = { usb = {}, glob = \"/dev/ttyUSB*\" }\n")
	place(t, dir+"/new.toml", head+`"ftdi"`+"\nmatch.usb.id = \"0403:*\"\n"+"[[resource]]\nname = \"serial\"\nmatch = { usb = {}, glob = \"/dev/ttyUSB*\" }\n")
	text := command(t, "check", dir+"/new.toml", "--against", dir+"/old.toml", "--sysfs", "../../testdata/machines/desktop-xhci.txtar",
		"--listen", "127.0.0.1:1", "--pod-resources", dir+"/pods.sock", "-o", "json") // tcpmux: nobody
	// Only who is named is asked: the kubelet of this host has nothing of a recording.
	if text := command(t, "check", dir+"/new.toml", "--against", dir+"/old.toml", "--sysfs", "../../testdata/machines/desktop-xhci.txtar", "--listen", "127.0.0.1:1"); !strings.Contains(text, "Holders are unknown: ") || strings.Contains(text, ".sock") {
		t.Errorf("a recording, and an instance that does not answer:\n%s", text)
	}
	// An instance that does not know the holders is not an instance without holders.
	instance := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"held_unknown": "the kubelet is silent", "resources": []}`)
	}))
	defer instance.Close()
	unknown := command(t, "check", dir+"/new.toml", "--against", dir+"/old.toml", "--sysfs", "../../testdata/machines/desktop-xhci.txtar", "--listen", strings.TrimPrefix(instance.URL, "http://"))
	if !strings.Contains(unknown, "the kubelet is silent") {
		t.Errorf("an instance without knowledge:\n%s", unknown)
	}
	var all answer.Check
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
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
