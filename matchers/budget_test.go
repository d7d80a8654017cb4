package matchers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
	"github.com/generic-dp/generic-dp/matchers"
)

const tooLong = "reading it takes too long: a configuration may read 200,000 directory entries in all, and a search may take half a second"

// A resource whose searches use up the budget has no devices by them, and a problem that names
// the key. The others are offered, whatever their place in the configuration.
func TestBudget(t *testing.T) {
	t.Parallel()
	const honest = `
[[resource]]
name = "honest"
match = { glob = "/dev/fuse", attr.state = "on" }
container.env.A = "${attr:state}"
`
	snap, opts := scanned(t, rig(t))
	host(&opts).attr = attrValues("on")
	for name, c := range map[string]struct{ resource, want string }{
		"match":    {`match.attr."*/x" = "on"`, `match 1: attr."*/x": ` + tooLong},
		"negated":  {`match.attr."*/x" = "!off"`, `match 1: attr."*/x": ` + tooLong},
		"exclude":  {"match.glob = \"/dev/ttyACM*\"\n" + `exclude.attr."*/x" = "off"`, `exclude 1: attr."*/x": ` + tooLong},
		"variable": {"match.glob = \"/dev/ttyACM*\"\n" + `container.env.B = "${attr:*/x}"`, `${attr:*/x}: ` + tooLong},
		"group":    {"match.usb = {}\n" + `each = "attr:*/x"`, `${attr:*/x}: ` + tooLong},
		"mounts":   {"match = { glob = \"/run/**\" }\n", `match 1: glob "/run/**": ` + tooLong},
		"paths":    {"match.virtual = \"d\"\n" + `with = { path = "/run/x" }`, `with 1: path "/run/x": ` + tooLong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := opts
			opts.Host = costly{host(&opts)}
			hostile := "\n[[resource]]\nname = \"hostile\"\n" + c.resource
			for _, text := range []string{hostile + honest, honest + hostile} {
				result := matchers.Match(parse(t, text), snap, nil, opts)
				problems := faults(result)
				if len(problems) != 1 || !strings.Contains(problems[0], "hostile") || !strings.HasSuffix(problems[0], c.want) {
					t.Errorf("problems %q, want one of resource hostile: %s", problems, c.want)
				}
				for _, r := range result.Resources {
					_, isUnknown := result.Unknown[r.Resource]
					isHonest := r.Name == "example.com/honest"
					if isUnknown == isHonest {
						t.Errorf("%s: unknown is %t", r.Name, isUnknown)
					}
					usable := slices.DeleteFunc(slices.Clone(r.Offers), func(o device.Offer) bool { return o.Problem != "" })
					if isHonest != (len(usable) > 0) {
						t.Errorf("%s offers %d usable devices", r.Name, len(usable))
					}
				}
			}
		})
	}
}

// costly is a host on which a search with wildcards, or below /run, has no end.
type costly struct{ *fakeHost }

func (h costly) Attr(dir, name string, entries *int) ([]string, bool) {
	if strings.Contains(name, "*") {
		*entries = 0
		return nil, true
	}
	return h.fakeHost.Attr(dir, name, entries)
}

func (h costly) Exists(_ string, entries *int) bool {
	*entries = matchers.NoAnswer
	return false
}

func (h costly) Glob(_ pattern.Values, entries *int) []string {
	*entries = 0
	return nil
}

// faults are the problems of a result.
func faults(result matchers.Result) (all []string) {
	for _, n := range result.Notes {
		if n.Error {
			all = append(all, n.Place+": "+n.Text)
		}
	}
	return all
}

// Together the resources read no more than the budget, and each gets its share of one half.
func TestBudgetOfManyResources(t *testing.T) {
	t.Parallel()
	snap, opts := scanned(t, rig(t))
	read := 0
	counted := &counting{fakeHost: host(&opts), read: &read}
	opts.Host = counted
	var text strings.Builder
	const resources = 500
	for i := range resources {
		fmt.Fprintf(&text, "[[resource]]\nname = \"r%d\"\nmatch.attr.a%d = \"x\"\n", i, i)
	}
	result := matchers.Match(parse(t, text.String()), snap, nil, opts)
	if read < 150_000 || read > 200_000 {
		t.Errorf("%d entries were read, want 150,000 to 200,000", read)
	}
	problems := slices.DeleteFunc(faults(result), func(p string) bool { return !strings.HasSuffix(p, tooLong) })
	if n := len(problems); n < resources/2 || n > resources {
		t.Errorf("%d problems of %d resources", n, resources)
	}
	if n := len(counted.dirs); n != resources {
		t.Errorf("%d resources could read, want all %d", n, resources)
	}
}

// counting is a host that counts what is read, and by which attributes.
type counting struct {
	*fakeHost
	read *int
	dirs map[string]bool
}

func (h *counting) Attr(_, name string, entries *int) ([]string, bool) {
	cost := min(*entries, 150)
	*entries -= cost
	*h.read += cost
	if h.dirs == nil {
		h.dirs = make(map[string]bool)
	}
	h.dirs[name] = true
	return nil, false
}
