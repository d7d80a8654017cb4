package importer

import (
	"errors"
	"maps"
	"reflect"
	"regexp"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// resource is one [[resource]] of the result. Fields with a tag are keys of the
// language, in the order in which they are written, unless they are zero.
type resource struct {
	comments []string

	// Name has its domain until the domain that most names have is left out.
	Name string `toml:"name"`
	When struct {
		NodeName string `toml:"node_name"`
	} `toml:"when"`
	Count     int         `toml:"count"`
	Each      string      `toml:"each"`
	Numa      string      `toml:"numa"`
	Match     []match     `toml:"match"`
	Exclude   []match     `toml:"exclude"`
	With      []companion `toml:"with"`
	Container struct {
		Path        string         `toml:"path"`
		Permissions string         `toml:"permissions"`
		Env         map[string]any `toml:"env"`
	} `toml:"container"`
}

// match is an element of match. The tables have lists of patterns.
type match struct {
	USB           map[string]any `toml:"usb"`
	PCI           map[string]any `toml:"pci"`
	Net           map[string]any `toml:"net"`
	Subsystem     []string       `toml:"subsystem"`
	Driver        []string       `toml:"driver"`
	Attr          map[string]any `toml:"attr"`
	VFIO          bool           `toml:"vfio"`
	Glob          []string       `toml:"glob"`
	ContainerPath string         `toml:"container_path"`
	Permissions   string         `toml:"permissions"`
	Required      bool           `toml:"required"`
	Count         int            `toml:"count"`
}

// isMount reports whether the match selects paths to mount.
func (m match) isMount() bool {
	return len(m.Glob) > 0 && !strings.HasPrefix(m.Glob[0], "/dev/")
}

// set sets a condition, such as "usb.id" or "driver", unless there are no patterns for it.
func (m *match) set(key string, patterns ...string) {
	if len(patterns) == 0 {
		return
	}
	table, name, _ := strings.Cut(key, ".")
	switch table {
	case "usb":
		m.USB = with(m.USB, name, patterns)
	case "pci":
		m.PCI = with(m.PCI, name, patterns)
	case "net":
		m.Net = with(m.Net, name, patterns)
	case "attr":
		m.Attr = with(m.Attr, name, patterns)
	case "subsystem":
		m.Subsystem = patterns
	case "driver":
		m.Driver = patterns
	}
}

// with returns a table with another key. Matches that are copies of each other share their tables.
func with(table map[string]any, key string, patterns []string) map[string]any {
	changed := map[string]any{}
	maps.Copy(changed, table)
	changed[key] = patterns
	return changed
}

// companion is an element of with: a path that accompanies every device of the resource.
type companion struct {
	Path          string `toml:"path"`
	Permissions   string `toml:"permissions"`
	Optional      bool   `toml:"optional"`
	ContainerPath string `toml:"container_path"`
}

// joined is the value of a variable with an element for each device.
type joined struct {
	Value  string `toml:"value"`
	Prefix string `toml:"prefix"`
	Suffix string `toml:"suffix"`
}

// ids returns the patterns "vendor:product" for patterns of both, of which one list may be empty.
func ids(vendors, products []string) []string {
	var all []string
	for _, vendor := range vendors {
		if len(products) == 0 {
			all = append(all, vendor+":*")
		}
		for _, product := range products {
			all = append(all, vendor+":"+product)
		}
	}
	if len(vendors) > 0 {
		return all
	}
	for _, product := range products {
		all = append(all, "*:"+product)
	}
	return all
}

// quoteAll makes patterns that match the values literally.
func quoteAll(values []string) []string {
	var quoted []string
	for _, v := range values {
		quoted = append(quoted, pattern.Quote(v))
	}
	return quoted
}

// validCount returns a count as the language accepts it, and 0 for its default.
func validCount(at *value, count int) int {
	const most = 10_000
	if count > most {
		at.differs("count %d is imported as the maximum of %d", count, most)
		return most
	}
	if count <= 1 {
		return 0
	}
	return count
}

// escapeVariables is a text without variables.
func escapeVariables(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// fullMatch reports whether an expression matches the whole text. Expressions are compiled
// where they are used, since no other command needs them.
func fullMatch(expression, text string) bool {
	return regexp.MustCompile(`^(?:` + expression + `)$`).MatchString(text)
}

// add adds the resource that the value at has become, unless the configuration would be refused, or
// an earlier resource has the name. Pending comments are about the resource.
func (c *conversion) add(at *value, domain string, r *resource) {
	r.Name = domain + "/" + r.Name
	if rule := refused(r); rule != "" {
		at.lost("%s", rule)
		return
	}
	for _, other := range c.resources {
		if !r.collides(other) {
			continue
		}
		if r.toml() != other.toml() {
			at.lost("the resource %q is already above, with other settings", r.Name)
		}
		return
	}
	r.comments = c.pending
	c.pending = nil
	c.resources = append(c.resources, r)
}

// refused returns why a configuration with only this resource is invalid, or an empty string.
func refused(r *resource) string {
	_, err := config.Parse(config.File{
		Name: "imported.toml",
		Data: []byte(r.toml()),
	})
	var problems config.Problems
	if !errors.As(err, &problems) {
		return ""
	}
	first := problems[0]
	_, key, _ := strings.Cut(first.Place, "): ")
	return strings.TrimPrefix(key+": "+first.Text, ": ")
}

// collides reports whether two resources have one name on the same nodes. Resources whose
// names have variables may share a name.
func (r *resource) collides(other *resource) bool {
	haveNodes := r.When.NodeName != "" && other.When.NodeName != ""
	onOtherNodes := haveNodes && r.When.NodeName != other.When.NodeName
	hasVariable := strings.Contains(r.Name, "${") && !reflect.DeepEqual(r.Match, other.Match)
	return other.Name == r.Name && !hasVariable && !onOtherNodes
}
