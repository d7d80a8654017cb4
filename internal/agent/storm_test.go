package agent_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// The configuration changes all the time, sometimes half written, while devices come
// and go and pods are admitted: no device leaves a list within the minute that a
// kubelet needs, no list is empty, and in the end the last configuration is served.
func TestStormOfReloads(t *testing.T) {
	t.Parallel()
	texts := []string{
		parts("a", "b", "c"),
		parts("a count = 4", "c", "b"),
		parts("b", "c count = 2"),
		parts("a", "b register = \"always\"", "d"),
		parts("a"),
		"[[resource",
		"domain = \"example.com\"\n[[resource]]\nname = \"all\"\nmatch.glob = \"/dev/[a-d]-*\"\n",
	}
	n := newNode(t, texts[0])
	n.addNodes("a-0", "b-0", "c-0", "d-0")
	a, _ := n.serve()
	n.untilListed("example.com/a", []string{"a-0"}, nil)
	names := []string{"example.com/a", "example.com/b", "example.com/c", "example.com/d", "example.com/all"}

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{}, 3)
	go func() { // pods and scrapes
		defer func() { ended <- struct{}{} }()
		for i := 0; ctx.Err() == nil; i++ {
			name := names[i%len(names)]
			_, _ = n.kubelet.Admit(ctx, kubelettest.Request{Namespace: "d", Pod: fmt.Sprint(i), Container: "c", Resource: name}, 1)
			n.kubelet.Remove("d", fmt.Sprint(i))
			_, _, _, _ = a.Names(), a.Status(ctx), a.Entries(name), a.Ready()
		}
	}()
	go func() { // devices
		defer func() { ended <- struct{}{} }()
		for i := 0; ctx.Err() == nil; i++ {
			n.host.Remove(n.host.AddNode("", sysfstest.Node{Name: fmt.Sprintf("%c-1", 'a'+i%4), Subsystem: "misc"}))
		}
	}()
	for i := range 60 {
		text := texts[i%len(texts)]
		switch i % 3 {
		case 0:
			n.configure(text)
		case 1:
			n.configure(text[:len(text)/2])
			a.Reload()
			n.configure(text)
		default:
			next := n.options.Config + ".new"
			if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(next, n.options.Config); err != nil {
				t.Fatal(err)
			}
		}
		seen := strings.Count(n.log.String(), `msg="configuration`)
		a.Reload()
		n.eventually("any word of it", func() bool { return strings.Count(n.log.String(), `msg="configuration`) > seen })
	}
	stop()
	<-ended
	<-ended
	n.configure(texts[1])
	n.until("the last configuration", func() bool {
		list, _ := n.kubelet.Latest("example.com/a")
		return slices.Contains(list.Healthy(), "a-0::3")
	})
	for _, name := range names {
		var listed []string
		for _, list := range n.kubelet.Lists(name) {
			ids := slices.Concat(list.Healthy(), list.Unhealthy())
			if len(listed) > 0 && len(ids) == 0 {
				t.Errorf("%s: an empty list", name)
			}
			for _, id := range listed {
				if !slices.Contains(ids, id) {
					t.Errorf("%s: %s left the list: %v", name, id, ids)
				}
			}
			listed = ids
		}
	}
}
