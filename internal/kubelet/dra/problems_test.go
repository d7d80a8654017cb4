package dra

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
)

func TestProblems(t *testing.T) {
	t.Parallel()
	list := func(r *http.Request) bool { return r.URL.Path == slicesPath && r.Method == http.MethodGet }
	watch := func(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }
	create := func(r *http.Request) bool { return r.Method == http.MethodPost }
	node := func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/v1/nodes/") }
	for name, test := range map[string]struct {
		of   func(*http.Request) bool
		code int
		want string
	}{
		"old server":     {list, 404, "1.34"},
		"no list":        {list, 403, "dra.enabled"},
		"no watch":       {watch, 403, "dra.enabled"},
		"no create":      {create, 403, "dra.enabled"},
		"no node right":  {node, 403, "dra.enabled"},
		"no node":        {node, 404, "--node-name"},
		"invalid device": {create, 422, "422"},
		"conflict":       {create, 409, ""},
		"overload":       {list, 429, ""},
		"failure":        {create, 500, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.Fault(func(r *http.Request, _ kubeapitest.Object) int {
				if test.of(r) {
					return test.code
				}
				return 0
			})
			p := start(t, s)
			p.Set(devices("a"))
			failed := func() (n int) {
				for _, r := range s.Requests() {
					if r.Code == test.code {
						n++
					}
				}
				return n
			}
			p.until("failed", func([]slice) bool { return failed() > 2 })
			if got := p.Problem(""); !strings.Contains(got, test.want) || test.want == "" && got != "" {
				t.Errorf("problem %q, want %q in it", got, test.want)
			}
			s.Fault(nil)
			p.until("published", has("a"))
			p.until("healed", func([]slice) bool { return p.Problem("") == "" })
		})
	}
}

func TestTokenRotates(t *testing.T) {
	t.Parallel()
	p := startWith(t, "a")
	p.server.Rotate("second")
	p.Set(devices("b"))
	p.until("refused", func([]slice) bool { return strings.Contains(p.Problem(""), "does not accept the token") })
	must(t, os.WriteFile(p.server.Config.Token, []byte("second"), 0o600))
	p.until("published", has("b"))
	p.until("healed", func([]slice) bool { return p.Problem("") == "" })
}

// The service account has exactly the rights that are used.
func TestRights(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	p := start(t, server)
	for _, n := range []int{1, 2, 2 * maxDevices, 1} {
		p.publishes(numbered(n)...)
	}
	p.until("watched", func([]slice) bool { return slices.Contains(server.Used(), "watch resourceslices") })
	server.Put("/apis/resource.k8s.io/v1/namespaces/lab/resourceclaims/a", kubeapitest.Object{})
	if _, err := New(Options{API: kubeapi.New(server.Config)}).claims.get(t.Context(), "lab", "a"); err != nil {
		t.Fatal(err)
	}
	if used, granted := server.Used(), kubeapitest.Granted(t, "../../../deploy/dra/generic-dp.yaml"); !slices.Equal(used, granted) {
		t.Errorf("used: %q, granted: %q", used, granted)
	}
}
