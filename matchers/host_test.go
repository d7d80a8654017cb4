package matchers_test

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/bmatcuk/doublestar/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
	"github.com/generic-dp/generic-dp/matchers"
)

// words is some of the words in a row.
func words(rng *rand.Rand, most int, from ...string) string {
	var b strings.Builder
	for range 1 + rng.IntN(most) {
		b.WriteString(from[rng.IntN(len(from))])
	}
	return b.String()
}

// tree is a host of nodes without hardware at random paths, and of links to
// some of them.
func tree(rng *rand.Rand) *device.Snapshot {
	snap := &device.Snapshot{}
	taken := map[string]bool{"/dev": true}
	dirs := map[string]bool{"/dev": true}
	for len(snap.Nodes) < 30 {
		p := path.Clean("/dev/" + words(rng, 4, "a", "b", "ab", "-", "/", "x/", "é"))
		if taken[p] || slices.ContainsFunc(snap.Nodes, func(n *device.Node) bool { return strings.HasPrefix(p, n.Path+"/") }) ||
			slices.ContainsFunc(snap.Links, func(l device.Link) bool { return strings.HasPrefix(p, l.Path+"/") }) {
			continue
		}
		taken[p] = true
		for d := path.Dir(p); d != "/"; d = path.Dir(d) {
			dirs[d], taken[d] = true, true
		}
		if len(snap.Nodes) > 0 && rng.IntN(3) == 0 {
			snap.Links = append(snap.Links, device.Link{Path: p, Node: snap.Nodes[rng.IntN(len(snap.Nodes))]})
		} else {
			snap.Nodes = append(snap.Nodes, &device.Node{Path: p, Type: device.CharNode, Kernel: path.Base(p), Interface: -1, Index: -1})
		}
	}
	for d := range dirs {
		snap.Dirs = append(snap.Dirs, d)
	}
	slices.Sort(snap.Dirs)
	slices.SortFunc(snap.Nodes, func(a, b *device.Node) int { return strings.Compare(a.Path, b.Path) })
	slices.SortFunc(snap.Links, func(a, b device.Link) int { return strings.Compare(a.Path, b.Path) })
	return snap
}

// offered lists the nodes on the host that resources offer, by resource.
func offered(result matchers.Result) [][]string {
	var all [][]string
	for _, r := range result.Resources {
		nodes := []string{}
		for _, o := range r.Offers {
			for _, n := range o.Nodes {
				nodes = append(nodes, n.HostPath)
			}
		}
		slices.Sort(nodes)
		all = append(all, nodes)
	}
	return all
}

// A glob selects what doublestar selects of the paths of nodes and of the links to them.
func TestGlobSelectsAsDoublestar(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	selected := 0
	for range 100 {
		snap := tree(rng)
		var globs [][]string
		cfg := &config.Config{}
		for len(globs) < 20 {
			var patterns []string
			for range 1 + rng.IntN(3) {
				p := path.Clean("/dev/" + words(rng, 4, "a", "b", "ab", "-", "/", "x/", "*", "*", "?", "**/", "[ab]", "{a,*b}"))
				// There doublestar differs, see package pattern.
				if _, err := pattern.Parse(pattern.Path, p); err == nil && !strings.HasSuffix(p, "**") && p != "/dev" {
					patterns = append(patterns, p)
				}
			}
			if len(patterns) == 0 {
				continue
			}
			if len(patterns) == 3 {
				patterns[2] = "!" + patterns[2]
			}
			globs = append(globs, patterns)
			var parsed []pattern.Values
			for _, written := range patterns {
				p, err := pattern.Parse(pattern.Path, written)
				if err != nil {
					t.Fatal(err)
				}
				parsed = append(parsed, p)
			}
			cfg.Resources = append(cfg.Resources, config.Resource{
				Name: fmt.Sprintf("example.com/r%d", len(globs)), Shared: true, Each: config.EachNode, Match: []config.Match{{Glob: pattern.Join(parsed...)}},
			})
		}
		got := offered(matchers.Match(cfg, snap, nil, matchers.Options{Host: &fakeHost{}}))
		for i, patterns := range globs {
			want := []string{}
			for _, n := range snap.Nodes {
				names := []string{n.Path}
				for _, l := range snap.Links {
					if l.Node == n {
						names = append(names, l.Path)
					}
				}
				matched := func(positive bool) bool {
					return slices.ContainsFunc(patterns, func(p string) bool {
						p, not := strings.CutPrefix(p, "!")
						return not != positive && slices.ContainsFunc(names, func(name string) bool { return doublestar.MatchUnvalidated(p, name) })
					})
				}
				if matched(true) && !matched(false) {
					want = append(want, n.Path)
				}
			}
			selected += len(want)
			if diff := cmp.Diff(want, got[i]); diff != "" {
				t.Fatalf("glob = %q (-want +got):\n%s", patterns, diff)
			}
		}
	}
	if selected < 3_000 {
		t.Errorf("%d nodes were selected: want enough of them for the test to tell anything", selected)
	}
}
