package importer

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// resource is one [[resource]] of the result. Fields with a tag are keys of the
// language, in the order in which they are written, unless they are zero.
type resource struct {
	comments []string
	// disabled resources are written as comments: what could not be imported remains
	// visible, and can be completed by hand.
	disabled bool
	// tooBroad are matches with a condition that our language lacks. They are written only if
	// there are no others, in a disabled resource.
	tooBroad []match
	// mayShare allows other resources to have the same devices: the other plugin counts
	// the slots of each of its resources separately.
	mayShare bool
	// addressIDs is set if other programs need the addresses of PCI functions as IDs.
	addressIDs bool
	// at is the value of the input that the resource is made of, for messages.
	at *value
	// workload is the plugin that offered the resource. Plugins on different nodes may have
	// resources with one name.
	workload *workload

	// Name has its domain until finish leaves out the domain that most names have.
	Name string `toml:"name"`
	When struct {
		NodeName string `toml:"node_name"`
	} `toml:"when"`
	Count     int         `toml:"count"`
	Each      string      `toml:"each"`
	Shared    bool        `toml:"shared"`
	Numa      string      `toml:"numa"`
	Identity  string      `toml:"identity"`
	Match     []match     `toml:"match"`
	Exclude   []match     `toml:"exclude"`
	With      []companion `toml:"with"`
	Container struct {
		Path        string         `toml:"path"`
		Permissions string         `toml:"permissions"`
		CDI         bool           `toml:"cdi"`
		Owner       map[string]any `toml:"owner"`
		Env         map[string]any `toml:"env"`

		MaxPerContainer int `toml:"max_per_container"`
	} `toml:"container"`
}

// match is an element of match. Conditions that the plugins of several formats have are
// fields; attr has all others.
type match struct {
	USB       usbMatch       `toml:"usb"`
	PCI       pciMatch       `toml:"pci"`
	Net       netMatch       `toml:"net"`
	Mdev      mdevMatch      `toml:"mdev"`
	CDIDevice string         `toml:"cdi_device"`
	Subsystem []string       `toml:"subsystem"`
	Driver    []string       `toml:"driver"`
	Attr      map[string]any `toml:"attr"`

	VFIO          bool     `toml:"vfio"`
	Glob          []string `toml:"glob"`
	As            string   `toml:"as"`
	ReadOnly      *bool    `toml:"read_only"`
	ContainerPath string   `toml:"container_path"`
	Permissions   string   `toml:"permissions"`
	Required      bool     `toml:"required"`
	Count         int      `toml:"count"`
}

// attr adds a condition on a sysfs attribute.
func (m *match) attr(name string, values ...string) {
	if len(values) == 0 {
		return
	}
	// Matches that are copies of each other share the map.
	m.Attr = maps.Clone(m.Attr)
	if m.Attr == nil {
		m.Attr = make(map[string]any)
	}
	m.Attr[name] = values
}

// usbMatch are the conditions on a USB device.
type usbMatch struct {
	ID           string   `toml:"id"`
	Vendor       []string `toml:"vendor"`
	Product      []string `toml:"product"`
	Serial       []string `toml:"serial"`
	Manufacturer []string `toml:"manufacturer"`
	ProductName  []string `toml:"product_name"`
	Port         []string `toml:"port"`

	InterfaceClass []string `toml:"interface_class"`
}

// netMatch are the conditions on a network interface of the hardware.
type netMatch struct {
	Name []string `toml:"name"`
	Type []string `toml:"type"`
}

// mdevMatch is the condition on a mediated device.
type mdevMatch struct {
	Name string `toml:"name"`
}

// pciMatch are the conditions on a PCI function.
type pciMatch struct {
	ID      string   `toml:"id"`
	Class   []string `toml:"class"`
	Vendor  []string `toml:"vendor"`
	Device  []string `toml:"device"`
	Address []string `toml:"address"`
	Driver  []string `toml:"driver"`
	SRIOV   string   `toml:"sriov"`
	PF      []string `toml:"pf"`
	VF      string   `toml:"vf"`
}

// companion is an element of with: a path that accompanies every device of the resource.
type companion struct {
	Path          string `toml:"path"`
	HostPath      string `toml:"host_path"`
	Glob          string `toml:"glob"`
	As            string `toml:"as"`
	ReadOnly      *bool  `toml:"read_only"`
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

// differs records a difference that concerns the resource.
func (r *resource) differs(at *value, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	at.c.warn(at.place() + text)
	r.comment(text)
}

// comment adds a comment in front of the resource, once.
func (r *resource) comment(text string) { r.comments = addOnce(r.comments, text) }

// addMatches adds the matches of a rule, unless it has an untestable condition.
func (r *resource) addMatches(at *value, untestable string, matches ...match) {
	if untestable == "" {
		r.Match = append(r.Match, matches...)
		return
	}
	matches = slices.DeleteFunc(matches, func(m match) bool {
		return reflect.ValueOf(m).IsZero()
	})
	if len(matches) == 0 {
		r.differs(at, "not imported: %s", untestable)
		return
	}
	written := strings.Join(elements(reflect.ValueOf(matches)), ", ")
	r.differs(at, "not imported: %s; without it this match would select too much: %s", untestable, written)
	r.tooBroad = append(r.tooBroad, matches...)
}

// setCount sets the count; at is for messages.
func (r *resource) setCount(at *value, count int) { r.Count = r.validCount(at, count) }

// validCount returns a count as the language accepts it, and 0 for its default.
func (r *resource) validCount(at *value, count int) int {
	const most = 10_000
	if count > most {
		r.differs(at, "differs: count %d is imported as the maximum of %d", count, most)
		return most
	}
	if count <= 1 {
		return 0
	}
	return count
}

// escapeVariables is a text without variables.
func escapeVariables(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// add adds the resource that the value at has become.
func (c *conversion) add(at *value, r *resource, in *workload) {
	if rule := checkName(r.Name); rule != "" {
		at.report("%s", rule)
	}
	r.at = at
	r.workload = in
	if in.node != "" && r.When.NodeName == "" {
		r.When.NodeName = pattern.Quote(in.node)
		c.comment("The names of nodes need the flag --node-name.")
	}
	if len(in.labels) > 0 {
		c.comment("Deploy generic-dp to the same nodes as before, with the labels " + strings.Join(in.labels, ", ") + ".")
	}
	c.resources = append(c.resources, r)
}
