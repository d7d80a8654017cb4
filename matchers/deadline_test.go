package matchers_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/matchers"
)

// A resource whose patterns take longer than its time has no devices, rather than some of them or
// devices with some of their nodes. The others are offered, whatever their place in the configuration.
func TestDeadline(t *testing.T) {
	t.Parallel()
	const honest = `
[[resource]]
name = "honest"
match.glob = "/dev/fuse"
container.env.A = "${devnode:/dev/f*}"
`
	// The patterns match no path of the host.
	hard := func(prefix string) string {
		var list []string
		for i := range 20 {
			list = append(list, fmt.Sprintf("%q", prefix+strings.Repeat("?*", 100)+fmt.Sprint(i)))
		}
		return "[" + strings.Join(list, ", ") + "]"
	}
	var variables strings.Builder
	for i := range 30 {
		fmt.Fprintf(&variables, "${devnode:/dev/[t%s%d]tyACM0}", strings.Repeat("x", 200), i)
	}
	snap, opts := scanned(t, rig(t))
	for name, resource := range map[string]string{
		"glob":           `match.glob = ` + hard("/dev/"),
		"condition":      `match = { usb = { serial = ` + hard("") + ` } }`,
		"negated glob":   `match = { glob = [ "/dev/tty*", ` + hard("!/dev/")[1:] + ` }`,
		"exclude":        "match.glob = \"/dev/ttyACM0\"\nexclude.usb.serial = " + hard("C"),
		"exclude of all": "match.pci = {}\nexclude.attr.x = " + hard("C"),
		"CDI devices":    `match.cdi_device = ` + hard("nvidia.com/gpu="),
		"variable":       "match.glob = \"/dev/ttyACM0\"\ncontainer.env.B = \"" + variables.String() + `"`,
		"wildcard":       `match.glob = ["/dev/ttyACM?", ` + hard("/dev/")[1:] + "\ncontainer.env.B = \"${1}\"",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := opts
			// Each reading of the clock takes longer than all resources may take.
			now := time.Unix(0, 0)
			opts.Now = func() time.Time {
				now = now.Add(time.Minute)
				return now
			}
			hostile := "\n[[resource]]\nname = \"hostile\"\n" + resource
			for _, text := range []string{hostile + honest, honest + hostile} {
				result := matchers.Match(parse(t, text), snap, nil, opts)
				if !result.Late {
					t.Error("the result is not late")
				}
				for _, r := range result.Resources {
					isHonest := r.Name == "example.com/honest"
					_, isUnknown := result.Unknown[r.Resource]
					if isUnknown == isHonest {
						t.Errorf("%s: unknown is %t", r.Name, isUnknown)
					}
					if isHonest != (len(r.Offers) > 0) {
						t.Errorf("%s: offers %q", r.Name, sayAll(r.Offers))
					}
				}
			}
		})
	}
}
