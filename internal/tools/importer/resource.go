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
	disabled bool // written as a comment
	// tooBroad are matches with a condition that our language lacks. They are written only if
	// there are no others, in a disabled resource.
	tooBroad []match
	// mayShare allows other resources to have the same devices: the other plugin counts
	// the slots of each of its resources separately.
	mayShare bool
	at       *value
	workload *workload

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
}

// attr adds a condition on a sysfs attribute.
func (m *match) attr(name string, values ...string) {
	if len(values) > 0 {
		m.Attr = maps.Clone(m.Attr)
		if m.Attr == nil {
			m.Attr = make(map[string]any)
		}
		m.Attr[name] = values
	}
}

type usbMatch struct {
	ID           string   `toml:"id"`
	Vendor       []string `toml:"vendor"`
	Product      []string `toml:"product"`
	Serial       []string `toml:"serial"`
	Manufacturer []string `toml:"manufacturer"`
	ProductName  []string `toml:"product_name"`
}

type netMatch struct {
	Name []string `toml:"name"`
	Type []string `toml:"type"`
}

type mdevMatch struct {
	Name string `toml:"name"`
}

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
	written := strings.Join(elements(reflect.ValueOf(matches)), ", ")
	r.differs(at, "not imported: %s; without it this match would select too much: %s", untestable, written)
	r.tooBroad = append(r.tooBroad, matches...)
}

// setCount sets the count; at is for messages.
func (r *resource) setCount(at *value, count int) {
	const most = 10_000
	if count > most {
		r.differs(at, "differs: count %d is imported as the maximum of %d", count, most)
		count = most
	}
	if count > 1 { // the default
		r.Count = count
	}
}

// escapeVariables is a text without variables.
func escapeVariables(s string) string { return strings.ReplaceAll(s, "${", "$${") }

// add adds the resource that the value at has become.
func (c *conversion) add(at *value, r *resource, in *workload) {
	if rule := checkName(r.Name); rule != "" {
		at.report("%s", rule)
	}
	r.at, r.workload = at, in
	if in.node != "" && r.When.NodeName == "" {
		r.When.NodeName = pattern.Quote(in.node)
		c.comment("The names of nodes need the flag --node-name.")
	}
	if len(in.labels) > 0 {
		c.comment("Deploy generic-dp to the nodes of the other plugin, those with " + strings.Join(in.labels, ", ") + ".")
	}
	c.resources = append(c.resources, r)
}

// disable disables resources without matches, or with the name of an earlier one.
func (c *conversion) disable() {
	for i, r := range c.resources {
		if len(r.Match) == 0 {
			r.disabled, r.Match = true, r.tooBroad
		}
		for _, other := range c.resources[:i] {
			apart := r.When.NodeName != other.When.NodeName && r.When.NodeName != "" && other.When.NodeName != ""
			if other.Name != r.Name || strings.Contains(r.Name, "${") || other.disabled || apart {
				continue
			}
			r.disabled = true
			if lines("", reflect.ValueOf(*r)) != lines("", reflect.ValueOf(*other)) {
				r.differs(r.at, "not imported: another configuration has this name above: put this resource into a file for its own nodes only")
			}
			break
		}
	}
}

// finish resolves conflicts between resources: equal names and common devices. It also sets
// their default domain.
func (c *conversion) finish() {
	c.disable()
	c.resources = slices.DeleteFunc(c.resources, func(r *resource) bool { return r.disabled && len(r.comments) == 0 })
	c.shareOverlaps()
	for _, r := range c.resources {
		for _, m := range r.Match {
			if slices.ContainsFunc(m.Glob, func(glob string) bool { return fullMatch(dangerous, glob) }) {
				r.differs(r.at, "differs: disks, memory and the like need dangerous = true in their match, and --allow=dangerous")
			}
		}
		domain, name, _ := strings.Cut(r.Name, "/")
		if c.defaultDomain == "" {
			c.defaultDomain = domain
		}
		if domain == c.defaultDomain {
			r.Name = name
		}
	}
}

// dangerous are names of nodes that give access to the host itself, for a warning: the host
// decides by number and subsystem.
const dangerous = `/dev/((sd|vd|hd|xvd)[a-z*?[].*|(nvme|mmcblk|loop|nbd|dm-|md|sr|sg|mtd|ipmi|mei)[0-9*?[].*|(mapper|disk|block|cpu|zvol)/.*|mem|kmem|port|kmsg|console|vcio|vc-mem|uinput|uhid|tty[0-9].*|(watchdog|usbmon|vport|vcs[au]?)[0-9*?[].*|input/(event|mouse|mice).*)`

// shareOverlaps lets resources share devices that several of them may select, if either
// may be shared.
func (c *conversion) shareOverlaps() {
	selections := make([][]selection, len(c.resources))
	for i, a := range c.resources {
		selections[i] = a.selections()
		for k, b := range c.resources[:i] {
			if a.disabled || b.disabled || !a.mayShare && !b.mayShare || !overlap(selections[i], selections[k]) {
				continue
			}
			for _, r := range []*resource{a, b} {
				r.Shared = true
				r.comment("shared: another resource may select the same devices, and each counts its own slots")
			}
		}
	}
}

// selection is the set of nodes that a glob of a match selects.
type selection struct {
	prefix     string // before the first wildcard
	fixed      bool   // no wildcard
	class      string
	whole      bool   // all nodes of the hardware are selected
	id, serial string // of the USB device, if any
}

func (r *resource) selections() (all []selection) {
	for _, m := range r.Match {
		if m.As != "" {
			continue
		}
		for _, g := range m.Glob {
			s := selection{id: m.USB.ID, serial: strings.Join(m.USB.Serial, "")}
			s.whole = r.Each == "device" || r.Each == "all" && s.id != ""
			if a, err := parseGlob(g); err == nil {
				_, s.fixed = a.Literal()
				s.prefix = a.Prefix()
			}
			switch {
			case fullMatch(graphicsNodes, g):
				s.class = "graphics"
			case !fullMatch(softwareNodes, g):
				s.class = "other"
			}
			all = append(all, s)
		}
	}
	return all
}

// Hardware has nodes of a single class: those of graphics, or others, since a USB device may
// have any of them. The class of nodes without hardware is empty.
const (
	graphicsNodes = `/dev/(dri/|fb|accel|nvidia).*`
	softwareNodes = `/dev/(fuse|kvm|kfd|net/tun|vhost-|loop|uinput|uhid|dma_heap/|vfio/vfio).*`
)

// overlap reports whether two resources may select the same device: the same node, or
// nodes of hardware that one of them selects whole. It errs on the side of yes.
func overlap(a, b []selection) bool {
	for _, s := range a {
		for _, t := range b {
			sameUSB := s.id == "" || t.id == "" || s.id == t.id && (s.serial == "" || t.serial == "" || s.serial == t.serial)
			samePath := s.prefix == t.prefix || strings.HasPrefix(s.prefix, t.prefix) && !t.fixed || strings.HasPrefix(t.prefix, s.prefix) && !s.fixed
			sameHardware := (s.whole || t.whole) && s.class == t.class && s.class != ""
			if sameUSB && (samePath || sameHardware) {
				return true
			}
		}
	}
	return false
}
