package matchers_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
	"github.com/generic-dp/generic-dp/matchers"
)

const tooLong = "reading it takes too long: a search may take half a second, and all resources together some seconds"

// A resource whose searches take too long has no devices by them, and a problem that names
// the key. The others are offered, whatever their place in the configuration.
func TestSlowReads(t *testing.T) {
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
		"last":     {"match.glob = \"/dev/null\"\n" + `match.attr."*/x" = "on"`, `match 1: attr."*/x": ` + tooLong},
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
			slow := &slowHost{fakeHost: host(&opts), now: time.Unix(0, 0)}
			opts.Host = slow
			opts.Now = func() time.Time { return slow.now }
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

// slowHost is a host on which the search for attributes with wildcards is cut off, and other searches have no end.
type slowHost struct {
	*fakeHost
	now time.Time
}

func (h *slowHost) Attr(dir, name string, until time.Time) ([]string, bool) {
	if strings.Contains(name, "*") {
		h.now = until.Add(time.Millisecond)
		return nil, true
	}
	return h.fakeHost.Attr(dir, name, until)
}

func (h *slowHost) Exists(string) (exists, known bool) { return false, false }

func (h *slowHost) Glob(pattern.Values, time.Time) ([]string, bool) { return nil, false }

// faults are the problems of a result.
func faults(result matchers.Result) (all []string) {
	for _, n := range result.Notes {
		if n.Error {
			all = append(all, n.Place+": "+n.Text)
		}
	}
	return all
}
