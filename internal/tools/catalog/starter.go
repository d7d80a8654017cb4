package catalog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Resource is a [[resource]] for an administrator to start with.
type Resource struct {
	Name string // without the domain
	// Comment names the devices that it selects on this host.
	Comment []string
	// Lines are its keys except for the name.
	Lines []string
}

// Text is the resource in TOML.
func (r Resource) Text() string {
	var b strings.Builder
	for _, line := range r.Comment { // may have names from devices and pods
		b.WriteString("# " + strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return '?'
			}
			return r
		}, strings.ToValidUTF8(line, "?")) + "\n")
	}
	fmt.Fprintf(&b, "[[resource]]\nname = %q\n%s\n", r.Name, strings.Join(r.Lines, "\n"))
	return b.String()
}

// group is hardware of one kind that one match selects by its identity. The nodes of the
// kind are injected; VFIO and network interfaces have none.
type group struct {
	kind
	identity string   // the lines that select it, such as match.usb.id = "10c4:ea60"
	lines    []string // further keys
	members  []*device.Hardware
}

// Starter lists resources for what a host has and pods may want: not its disks,
// bridges and keyboards.
func Starter(snap *device.Snapshot, names Names) []Resource {
	var groups []*group
	for _, h := range snap.Hardware {
		g := groupOf(snap, h)
		if g == nil || g.resource == "" || isSibling(snap, h) {
			continue
		}
		same := func(have *group) bool { return have.resource == g.resource && have.identity == g.identity }
		if i := slices.IndexFunc(groups, same); i >= 0 {
			groups[i].add(g)
		} else {
			groups = append(groups, g)
		}
	}
	slices.SortStableFunc(groups, func(a, b *group) int {
		return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.identity, b.identity))
	})
	var out []Resource
	for _, g := range groups {
		r := g.toResource(names)
		if slices.ContainsFunc(groups, func(other *group) bool { return other != g && other.resource == g.resource }) {
			vendor, product := ids(g.members[0])
			r.Name += "-" + cmp.Or(strings.Trim(vendor+"-"+product, "-"), strconv.Itoa(len(out)))
		}
		for n := 2; slices.ContainsFunc(out, func(other Resource) bool { return other.Name == r.Name }); n++ {
			r.Name = strings.TrimSuffix(r.Name, "-"+strconv.Itoa(n-1)) + "-" + strconv.Itoa(n)
		}
		out = append(out, r)
	}
	for _, k := range nodeKinds {
		var found []string
		for _, n := range snap.Nodes {
			if matches(n.Path, k.glob) {
				found = append(found, n.Path)
			}
		}
		if len(found) > 0 {
			out = append(out, k.toResource(snap, k.glob, found))
		}
	}
	return out
}

// isSibling reports whether a function belongs to the IOMMU group of an earlier one, as the
// sound of a GPU that is bound to VFIO.
func isSibling(snap *device.Snapshot, h *device.Hardware) bool {
	return h.PCI != nil && h.PCI.VFIO && slices.ContainsFunc(snap.Hardware, func(o *device.Hardware) bool {
		return o.PCI != nil && o.PCI.VFIO && o.PCI.IOMMUGroup == h.PCI.IOMMUGroup && o.PCI.Address < h.PCI.Address && attribute(o, "pci.id") != attribute(h, "pci.id")
	})
}

// toResource is the resource for the nodes found, which a glob selects.
func (k nodeKind) toResource(snap *device.Snapshot, glob string, found []string) Resource {
	r := Resource{Name: k.resource, Comment: []string{strings.TrimPrefix(k.name+": ", ": ") + strings.Join(found, " ")}}
	if k.note != "" {
		r.Comment = append(r.Comment, k.note)
	}
	if k.count > 1 {
		r.Comment = append(r.Comment, "Containers share it: count is how many may have it at once.")
		r.Lines = append(r.Lines, "count = "+strconv.Itoa(k.count))
	}
	r.Lines = append(r.Lines, "match.glob = "+quote(glob))
	r.Lines = append(r.Lines, companions(snap, k.with)...)
	return r
}

// For is the resource for one device: hardware, or a node or network interface, which
// may be nil.
func For(snap *device.Snapshot, names Names, h *device.Hardware, n *device.Node) Resource {
	noIdentity := h == nil || h.Bus == device.PlatformBus
	if noIdentity && n == nil {
		n = slices.Concat(h.Nodes, h.Nets)[0] // it would not be in the snapshot without any
	}
	switch {
	case n != nil && n.Net != nil:
		r := Resource{Name: slug(n.Path), Comment: []string{"network interface " + n.Path}}
		if !noIdentity {
			r.Lines = append(r.Lines, identity(h))
		}
		r.Lines = append(r.Lines, "match.net.name = "+quote(n.Path), "container.cdi = true")
		return r
	case noIdentity:
		return kindOfNode(n).toResource(snap, n.Path, []string{n.Path})
	}
	g := groupOf(snap, h)
	if g == nil {
		g = &group{kind: kindOf(h), members: []*device.Hardware{h}}
		g.name, g.nodes = cmp.Or(g.name, string(h.Bus)+" device"), nil
	}
	more := distinguishing(snap, h)
	if n != nil && !strings.HasPrefix(n.Path, "/dev/vfio/") {
		more = append(more, g.narrow(n)...)
	}
	g.identity = identity(h, more...)
	g.resource = cmp.Or(g.resource, slug(strings.ToLower(g.name)))
	return g.toResource(names)
}

// narrow selects a single node of the only member. It returns further conditions on the
// hardware.
func (g *group) narrow(n *device.Node) (more []string) {
	h := g.members[0]
	if !matches(n.Path, g.nodes...) { // such as the sound of a camera
		g.path = ""
		for _, k := range kinds {
			if k.resource != "" && matches(n.Path, k.nodes...) {
				g.kind = k
			}
		}
	}
	glob := n.Path[:len(strings.TrimRight(n.Path, "0123456789"))] + "*"
	if strings.HasPrefix(n.Path, "/dev/bus/usb/") {
		glob = busNodes
	}
	g.lines = nil
	alike := nodesOf(h, []string{glob})
	differ := func(value func(*device.Node) int) bool {
		return value(n) >= 0 && !slices.ContainsFunc(alike, func(o *device.Node) bool { return o != n && value(o) == value(n) })
	}
	switch {
	case len(alike) == 1:
	case h.USB != nil && differ(func(o *device.Node) int { return o.Interface }):
		more = append(more, fmt.Sprintf("interface = %d", n.Interface))
	case n.Subsystem == "video4linux" && differ(func(o *device.Node) int { return o.Index }):
		g.lines = append(g.lines, indexLine+strconv.Itoa(n.Index)+`"`)
	default:
		glob = n.Path
	}
	g.nodes = []string{glob}
	return more
}

// distinguishing are conditions for one device among others of its model: its serial
// number if unique, else its location.
func distinguishing(snap *device.Snapshot, h *device.Hardware) []string {
	vendor, product := ids(h)
	serial := attribute(h, "usb.serial")
	sameModel, sameSerial := 0, 0
	for _, other := range snap.Hardware {
		if v, p := ids(other); other != h && other.Bus == h.Bus && v == vendor && p == product {
			sameModel++
			if attribute(other, "usb.serial") == serial {
				sameSerial++
			}
		}
	}
	switch {
	case h.USB != nil && sameSerial == 0 && serial != "" && utf8.ValidString(serial) && !device.PlaceholderSerial(serial):
		return []string{"serial = " + quote(pattern.Quote(serial))}
	case sameModel == 0:
		return nil
	case h.USB != nil:
		return []string{fmt.Sprintf("path = %q", attribute(h, "usb.path"))}
	case h.PCI != nil && h.PCI.SRIOV == "sf":
		return []string{fmt.Sprintf("pf = %q", h.PCI.PF), fmt.Sprintf("vf = \"%d\"", h.PCI.VF)}
	case h.PCI != nil:
		return []string{fmt.Sprintf("address = %q", h.PCI.Address)}
	}
	return []string{fmt.Sprintf("uuid = %q", attribute(h, "mdev.uuid"))}
}

const (
	busNodes  = "/dev/bus/usb/*/*"
	indexLine = `match.attr.index = "`
)

// groupOf is the group of a single device, nil if nothing of it can be injected.
func groupOf(snap *device.Snapshot, h *device.Hardware) *group {
	g := &group{kind: kindOf(h), identity: identity(h), members: []*device.Hardware{h}}
	special := func(resource, name string, lines ...string) *group {
		g.kind, g.lines = kind{resource: resource, name: name}, lines
		return g
	}
	onlyNets := len(h.Nets) > 0 && len(h.Nodes) == 0
	switch {
	case h.IsRootHub():
		return nil
	case h.MDev != nil:
		return special("mdev", "mediated device", "match.vfio = true")
	case h.PCI != nil && h.PCI.VFIO:
		g.identity = identity(h, fmt.Sprintf("driver = %q", h.PCI.Driver))
		return special("vfio", "function for virtual machines and DPDK", "match.vfio = true")
	case h.Bus == device.PlatformBus:
		return nil
	case slices.ContainsFunc(h.Nets, func(n *device.Node) bool { return n.Net.Type == "can" }):
		return special("can", "CAN interface", `match.net.type = "can"`, `each = "node"`, "container.cdi = true")
	case h.PCI != nil && h.PCI.SRIOV == "vf" && onlyNets:
		g.identity = identity(h, `sriov = "vf"`)
		return special("vf", "virtual function", "match.net = {}", "container.cdi = true")
	case h.PCI != nil && h.PCI.SRIOV == "sf" && onlyNets:
		g.identity = identity(h, `sriov = "sf"`)
		return special("sf", "sub-function", "match.net = {}", "container.cdi = true")
	case g.name == "":
		return nil
	}
	found := nodesOf(h, g.nodes)
	if len(found) == 0 {
		g.path, g.nodes = "", []string{busNodes}
		for _, other := range kinds {
			if h.USB == nil && other.resource != "" {
				g.nodes = append(g.nodes, other.nodes...)
			}
		}
		if found = nodesOf(h, g.nodes); len(found) == 0 {
			return nil
		}
	}
	captures := 0
	for _, n := range found {
		if n.Subsystem == "video4linux" && n.Index == 0 {
			captures++
		}
	}
	switch {
	case len(found) == 1:
	case captures == 1:
		g.lines = append(g.lines, indexLine+`0"`)
	case g.name == "serial adapter":
		g.lines = append(g.lines, `each = "node"`)
	default:
		g.path = ""
	}
	if vendor, _ := ids(h); g.vendor == "" || g.vendor == vendor {
		g.lines = append(g.lines, companions(snap, g.with)...)
	}
	return g
}

// companions is the line of key with, for the paths that the host has; no line without any.
func companions(snap *device.Snapshot, candidates []string) []string {
	var tables []string
	for _, path := range candidates {
		if slices.ContainsFunc(snap.Nodes, func(n *device.Node) bool { return n.Path == path }) {
			tables = append(tables, fmt.Sprintf("{ path = %q }", path))
		}
	}
	if tables == nil {
		return nil
	}
	return []string{"with = [" + strings.Join(tables, ", ") + "]"}
}

// add adds hardware with the same identity. Where one needs a key, all get it.
func (g *group) add(other *group) {
	g.members = append(g.members, other.members...)
	g.lines, g.nodes = union(g.lines, other.lines...), union(g.nodes, other.nodes...)
	if other.path == "" {
		g.path = ""
	}
}

// union adds what a list lacks.
func union[T comparable](list []T, more ...T) []T {
	for _, one := range more {
		if !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return list
}

// identity are the lines that select hardware by its model, and further conditions.
func identity(h *device.Hardware, more ...string) string {
	table, key, value := string(h.Bus), "id", ""
	switch {
	case h.USB != nil:
		value = attribute(h, "usb.id")
	case h.PCI != nil:
		value = attribute(h, "pci.id")
	case h.MDev != nil:
		key, value = "type", h.MDev.Type
	}
	lines := fmt.Sprintf("match.%s.%s = %q", table, key, value)
	for _, condition := range more {
		lines += fmt.Sprintf("\nmatch.%s.%s", table, condition)
	}
	return lines
}

func nodesOf(h *device.Hardware, globs []string) []*device.Node {
	return slices.DeleteFunc(slices.Clone(h.Nodes), func(n *device.Node) bool { return !matches(n.Path, globs...) })
}

func (g *group) toResource(names Names) Resource {
	vendor, product := names.Of(g.members[0])
	title := strings.Fields(g.name + " " + vendor + " " + strings.TrimPrefix(product, vendor+" "))
	r := Resource{Name: g.resource, Comment: []string{strings.Join(title, " ")}, Lines: []string{g.identity}}
	var globs []string
	for _, h := range g.members {
		text := "  " + h.Name
		if s := attribute(h, "usb.serial"); s != "" {
			text += ", serial " + s
		}
		if found := nodesOf(h, g.nodes); len(found) > 0 {
			text += ": " + strings.Join(paths(found), " ")
		}
		for _, n := range h.Nets {
			text += " " + n.Path
		}
		r.Comment = append(r.Comment, text)
	}
	for _, glob := range g.nodes {
		if slices.ContainsFunc(g.members, func(h *device.Hardware) bool { return len(nodesOf(h, []string{glob})) > 0 }) {
			globs = append(globs, quote(glob))
		}
	}
	if text := strings.Join(globs, ", "); len(globs) == 1 {
		r.Lines = append(r.Lines, "match.glob = "+text)
	} else if len(globs) > 1 {
		r.Lines = append(r.Lines, "match.glob = ["+text+"]")
	}
	r.Lines = append(r.Lines, g.lines...)
	if g.path != "" {
		r.Lines = append(r.Lines, fmt.Sprintf("container.path = %q", g.path))
	}
	if len(g.nodes)+len(g.lines) == 0 {
		r.Comment = append(r.Comment, "It has no node to inject: a container gets what container.env says of it.")
	}
	if len(g.members) > 1 {
		r.Comment = append(r.Comment, "Pods get any of these: init DEVICE writes a resource for one of them.")
	}
	return r
}

// quote formats a basic string of TOML, which has the escapes of JSON.
func quote(s string) string {
	text, _ := json.Marshal(s) // a string has an encoding
	return string(text)
}

// slug makes a name of letters, digits and "-".
func slug(s string) string {
	return cmp.Or(strings.Trim(strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, s), "-"), "device")
}
