package dra

import (
	"slices"
	"testing"

	"github.com/generic-dp/generic-dp/internal/kubeapi"
	"github.com/generic-dp/generic-dp/internal/kubeapitest"
)

// The service account has exactly the rights that are used.
func TestRights(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	p := start(t, server)
	for _, n := range []int{1, 2, 2 * maxDevices, 1} {
		p.Set(devices(numbered(n)...))
		p.until("published", has(numbered(n)...))
	}
	p.until("watched", func([]slice) bool { return slices.Contains(server.Used(), "watch resourceslices") })
	server.Put("/apis/resource.k8s.io/v1/namespaces/lab/resourceclaims/a", kubeapitest.Object{})
	if _, err := New(Options{API: kubeapi.New(server.Config)}).get(t.Context(), "lab", "a"); err != nil {
		t.Fatal(err)
	}
	if used, granted := server.Used(), kubeapitest.Granted(t, "../deploy/kustomize/dra/rights.yaml"); !slices.Equal(used, granted) {
		t.Errorf("used: %q, granted: %q", used, granted)
	}
}
