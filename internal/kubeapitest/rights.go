package kubeapitest

import (
	"maps"
	"net/http"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Used are the rights that the requests need, "create pods/eviction", sorted.
func (s *Server) Used() []string {
	verbs := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodDelete: "delete"}
	used := map[string]bool{}
	for _, r := range s.Requests() {
		parts := strings.Split(strings.TrimPrefix(r.Path, "/"), "/")
		parts = parts[map[string]int{"api": 2, "apis": 3}[parts[0]]:]
		if parts[0] == "namespaces" {
			parts = parts[2:]
		}
		verb, resource := verbs[r.Method], parts[0]
		switch {
		case strings.Contains(r.Query, "watch=1"):
			verb = "watch"
		case verb == "" && len(parts) == 1:
			verb = "list"
		case verb == "":
			verb = "get"
		}
		if len(parts) == 3 {
			resource = path.Join(resource, parts[2])
		}
		used[verb+" "+resource] = true
	}
	return slices.Sorted(maps.Keys(used))
}

var rule = regexp.MustCompile(`resources: \[(.*)\]\n +verbs: \[(.*)\]`)

// Granted are the rights of the ClusterRole in a manifest, like those of Used.
func Granted(t testing.TB, manifest string) (rights []string) {
	t.Helper()
	text, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rule.FindAllStringSubmatch(string(text), -1) {
		for verb := range strings.SplitSeq(r[2], ", ") {
			rights = append(rights, verb+" "+r[1])
		}
	}
	slices.Sort(rights)
	return rights
}
