//go:build adversary

package adversary

import (
	"fmt"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// repeat joins n copies of a text in which % is the number of the copy.
func repeat(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, strings.ReplaceAll(format, "%", "%[1]d"), i)
	}
	return b.String()
}

// manySlots has more slots than fit into the memory limit.
var manySlots = repeat(200, "[[resource]]\nname = \"s%\"\ncount = 1000\nmatch.virtual = \"d\"\ncontainer.env.E = \"${id}\"\n")

// A hostile configuration takes no other resource away: it is refused if it is too large, and
// harmless if it is served.
func TestConfig(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"66 terminals, 10,000 times each": `
[[resource]]
name = "tty"
count = 10000
match.glob = "/dev/tty*"
`,
		"80,000 empty resources":                     strings.Repeat("[[resource]]\n", 80_000),
		"150,000 variables in a value":               resourceWith(`container.env.A = "` + strings.Repeat("${id}", 150_000) + `"`),
		"150,000 unknown variables":                  resourceWith(`container.env.A = "` + strings.Repeat("${i}", 150_000) + `"`),
		"5,000 virtual devices, 10,000 times each":   resourceWith("count = 10000\nmatch.virtual = [" + repeat(5000, `"d%",`) + "]"),
		"1,000 resources":                            repeat(1000, "[[resource]]\nname = \"r%\"\nmatch.virtual = \"d%\"\n"),
		"64,000 alternatives":                        resourceWith(`match.glob = [` + strings.Repeat(`"/dev/{`+strings.Repeat("a,", 62)+`b}",`, 1000) + `]`),
		"a pattern of 500 kB":                        resourceWith(`match.glob = "/dev/` + strings.Repeat("*t", 250_000) + `"`),
		"1,000 searches of /sys":                     resourceWith(`when.exists = [` + strings.Repeat(`"/sys/**/**/**/x",`, 1000) + "]\nmatch.glob = \"/dev/x\""),
		"a list in a list, 500,000 times":            "a = " + strings.Repeat("[", 500_000),
		"closed lists, 400,000 times":                "a = " + strings.Repeat("[", 400_000) + strings.Repeat("]", 400_000),
		"a table in a table, 100,000 times":          "a = " + strings.Repeat("{a=", 100_000) + "1" + strings.Repeat("}", 100_000),
		"a key of 400,000 parts":                     strings.Repeat("a.", 400_000) + "a = 1",
		"a header of 400,000 parts":                  "[" + strings.Repeat("a.", 400_000) + "a]",
		"60,000 unknown keys":                        resourceWith(repeat(60_000, "key% = 1\n")),
		"100,000 values of a type":                   resourceWith("match.glob = [" + strings.Repeat("1,", 100_000) + "]"),
		"300,000 variables of one device":            resourceWith(`match.virtual = { name = "d", vars = { ` + repeat(50_000, "v% = \"x\", ") + "} }"),
		"10,000 environment variables":               resourceWith("match.virtual = \"d\"\n" + repeat(10_000, "container.env.E% = \"${id}\"\n")),
		"10,000 companions":                          resourceWith("match.virtual = \"d\"\nwith = [" + repeat(10_000, "{ path = \"/dev/c%\" }, ") + "]"),
		"10,000 virtual devices with texts of 50 kB": resourceWith("match.virtual = [" + repeat(10_000, "\"d%\",") + "]\ncontainer.env.A = \"${id}" + strings.Repeat("x", 50<<10) + "\""),
		"a variable of 60 kB, 100 times in 100 texts": resourceWith("match.virtual = { name = \"d\", vars = { v = \"" + strings.Repeat("x", 60<<10) + "\" } }\n" +
			repeat(100, "container.env.E% = \""+strings.Repeat("${var:v}", 100)+"\"\n")),
		"all slots at one time":         repeat(7, "[[resource]]\nname = \"t%\"\nshared = true\ncount = 10000\nmatch.glob = \"/dev/tty[0-9]\"\n"),
		"as many slots as fit":          manySlots,
		"every name a resource":         "[[resource]]\nname = \"n-${kernel}\"\ncount = 1000\nmatch.glob = \"/dev/tty*\"\n",
		"CDI specs for 1,000 resources": repeat(990, "[[resource]]\nname = \"c%\"\nmatch.virtual = \"d\"\ncontainer.cdi = true\ncontainer.env.E = \""+strings.Repeat("x", 1000)+"\"\n"),
		"not UTF-8":                     "\xff\xfe\x00",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			for i := range 66 {
				n.host.AddNode("", sysfstest.Node{Name: fmt.Sprintf("tty%d", i), Subsystem: "tty", Major: 4, Minor: uint32(i)})
			}
			n.serve()
			n.reload(goodConfig + text)
			n.waitReady()
			n.reload(goodConfig + "# edited\n")
			n.configure(goodConfig + text)
			n.stop()
			n.start() // with the hostile configuration, and a copy of the last good one
			n.waitServed()
			n.waitReady()
			n.stop()
			if out, err := n.command("check", "--config", n.configFile()); len(out) > 128<<10 {
				t.Errorf("check: %v, %d bytes of output, want at most 128 KiB", err, len(out))
			}
		})
	}
}

// resourceWith is the resource "hostile" with these keys.
func resourceWith(keys string) string {
	if !strings.Contains(keys, "match.") {
		keys += "\nmatch.glob = \"/dev/tty*\""
	}
	return "\n[[resource]]\nname = \"hostile\"\n" + keys + "\n"
}

// Conditions that search all of /sys delay no other resource.
func TestSearches(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.args = []string{"--sysfs", "/sys"}
	n.serve()
	n.reload(goodConfig + resourceWith(`when.exists = [`+repeat(900, `"!/sys/**/%/**/x", `)+`]`))
	n.waitServed()
	n.stop()
}
