package node_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/product"
)

// TestReadme runs the README's pod on a node with the README's configuration.
func TestReadme(t *testing.T) {
	t.Parallel()
	const fuse = "example.com/fuse"
	readme, err := os.ReadFile(product.Repository("README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var pod appsv1.Deployment
	if err := yaml.UnmarshalStrict([]byte(block(t, string(readme), "yaml")), &pod); err != nil {
		t.Fatal(err)
	}
	containers := pod.Spec.Template.Spec.Containers
	n := newNode(t)
	s := adapter("1-1", "A1B2C3D4", 0)
	n.Plug(s.Stick)
	n.mknod(t, "fuse", 100)
	n.serve(t, strings.Replace(block(t, string(readme), "toml"), domain, "", 1))
	n.Kubelet.WaitAllocatable(t, zigbee, 1)
	n.Kubelet.WaitAllocatable(t, fuse, 100)

	// The README's pod with the image of the bed.
	own := bed.Workload(pod.Name, "", 0)
	limits := containers[0].Resources
	own.Spec.Containers[0].Name = containers[0].Name
	own.Spec.Containers[0].Resources = limits
	p := n.run(t, own)
	r := p.Report(t, own.Spec.Containers[0].Name)
	wantNode(t, r, "/dev/zigbee", s.number())
	if r.Env["ZIGBEE_SERIAL"] != s.Serial {
		t.Errorf("environment: %v, want the serial number", r.Env)
	}
	n.wantHeld(t, zigbee, map[string]string{s.id(): pod.Name + "-bed/" + containers[0].Name})
}

// block returns the first code block of a language in a Markdown text.
func block(t testing.TB, text, language string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n```"+language+"\n")
	content, _, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		t.Fatalf("no %s block in the README", language)
	}
	return content
}

// TestQuickstart runs several pods that hold the quickstart's device.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	const resource = "example.com/null"
	text, err := os.ReadFile(product.Repository("examples", "configs", "quickstart.toml"))
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.serve(t, strings.Replace(string(text), domain, "", 1))
	n.Kubelet.WaitAllocatable(t, resource, 100)
	for i := range 3 {
		pod := n.run(t, bed.Workload(fmt.Sprintf("quickstart-%d", i), resource, 1))
		r := pod.Report(t, "main")
		wantNode(t, r, "/dev/quickstart", number{1, 3})
		if r.Env["QUICKSTART_DEVICE"] != "/dev/quickstart" {
			t.Errorf("environment: %v, want QUICKSTART_DEVICE", r.Env)
		}
		if _, stderr, code := pod.Exec(t, "main", "/tool", "open", "/dev/quickstart"); code != 0 {
			t.Errorf("open: %s", stderr)
		}
	}
	if held := n.held(t, resource); len(held) != 3 {
		t.Errorf("held: %v, want three slots", held)
	}
}
