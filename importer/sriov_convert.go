package importer

import (
	"fmt"
	"slices"
	"strings"
)

// vfioDriver is the driver whose functions are handed over by VFIO.
const vfioDriver = "vfio-pci"

// uioDrivers are those whose functions have a node of UIO that is handed over.
var uioDrivers = []string{"uio", "igb_uio"}

// sriovKind is what a selector hands over.
type sriovKind string

const (
	kernelKind sriovKind = "kernel" // nothing
	vfioKind   sriovKind = "vfio"
	uioKind    sriovKind = "uio"
	rdmaKind   sriovKind = "rdma"
	vdpaKind   sriovKind = "vdpa"
)

// sriovResource is a resource in the making.
type sriovResource struct {
	im   *importing
	pool *sriovPool
	r    *resource
	// kinds that its matches hand over, each once.
	kinds []sriovKind
}

func (c *sriovResource) note(at value, text string) { c.r.note(c.im.warn(at.place, text)) }

// convert makes the resource of a pool. One that can't be carried over is
// written as a comment.
func (p *sriovPool) convert(im *importing, prefix string) *resource {
	c := &sriovResource{im: im, pool: p, r: &resource{}}
	name := p.name
	if p.prefix != "" {
		name = p.prefix + "/" + p.name
	}
	c.r.pairs.add("name", name)
	if p.node != "" {
		c.r.pairs.add("when", table{{"node_name", escape(p.node)}})
	}
	if p.kind == sriovAux {
		c.note(p.at, "not carried over: auxiliary devices (subfunctions), of which only the PCI function above is known here")
		c.r.off = true
		c.r.pairs.add("match", []table{{{"pci", table{{"class", "02"}}}}})
		return c.r
	}
	var matches, lost []table
	for _, s := range p.selectors {
		found := c.matches(s)
		if reason := s.beyond(); reason != "" {
			c.note(s.at, "not carried over: "+reason+"; without that it would be a match too many, left out here: "+describe(found))
			lost = append(lost, found...)
			continue
		}
		matches = append(matches, found...)
	}
	if len(matches) == 0 {
		c.r.off = true
		matches = lost
	}
	if p.excludeTopology {
		c.r.pairs.add("numa", "none")
	}
	c.r.pairs.add("match", matches)
	if with := c.companions(); len(with) > 0 {
		c.r.pairs.add("with", with)
	}
	c.r.pairs.add("container", table{{"env", c.env(prefix)}})
	if p.kind == sriovNet && !c.r.off {
		c.headNet()
	}
	return c.r
}

// describe is matches in a comment.
func describe(matches []table) string {
	words := make([]string, len(matches))
	for i, m := range matches {
		words[i] = inline(m)
	}
	return strings.Join(words, ", ")
}

// beyond is what of a selector can't be asked for, empty where all can.
func (s *sriovSelector) beyond() string {
	switch {
	case len(s.ddpProfiles) > 0:
		return "ddpProfiles " + inline(s.ddpProfiles) + ", for which devlink has to be asked"
	case len(s.pKeys) > 0:
		return "pKeys " + inline(s.pKeys) + ", the partition keys of InfiniBand"
	case len(s.linkTypes) > 0 && !slices.ContainsFunc(s.linkTypes, func(t string) bool { return linkClasses[t] != "" }):
		return "linkTypes " + inline(s.linkTypes) + ", of which no PCI class is known"
	case s.vdpaType == "virtio":
		return `vdpaType "virtio", whose interfaces are no nodes`
	}
	return ""
}

// headNet says once what is different of all network functions.
func (c *sriovResource) headNet() {
	c.im.head(`A network interface whose route is the default one of the host was left out by itself: where a match selects it, add an "!" with its address to pci.address.`)
	c.im.head("IDs are PCI addresses as before, so that Multus and CNI plugins find the function; device information files (/var/run/k8s.cni.cncf.io/devinfo) are not written.")
}

// matches of a selector: several where the functions of VFIO are handed over
// in another way than the rest, and one for each physical function with
// ranges of its own.
func (c *sriovResource) matches(s sriovSelector) (out []table) {
	for _, kind := range c.kindsOf(s) {
		if !slices.Contains(c.kinds, kind) {
			c.kinds = append(c.kinds, kind)
		}
		for _, pf := range c.functions(s) {
			out = append(out, c.match(s, kind, pf))
		}
	}
	return out
}

// kindsOf is what a selector hands over, as its drivers say.
func (c *sriovResource) kindsOf(s sriovSelector) []sriovKind {
	switch {
	case s.vdpaType != "":
		return []sriovKind{vdpaKind}
	case s.isRDMA:
		return []sriovKind{rdmaKind}
	}
	rest := slices.DeleteFunc(slices.Clone(s.drivers), func(d string) bool { return d == vfioDriver })
	uio := func(d string) bool { return slices.Contains(uioDrivers, d) }
	var kinds []sriovKind
	if len(rest) < len(s.drivers) || len(s.drivers) == 0 {
		kinds = append(kinds, vfioKind)
	}
	switch {
	case len(rest) > 0 && !slices.ContainsFunc(rest, func(d string) bool { return !uio(d) }):
		kinds = append(kinds, uioKind)
	case len(rest) > 0 || len(s.drivers) == 0:
		kinds = append(kinds, kernelKind)
	}
	return kinds
}

// functions lists the conditions on the physical function, one of which has to
// hold; an empty one is none.
func (c *sriovResource) functions(s sriovSelector) []table {
	from := s.rootDevices
	if len(from) == 0 {
		from = s.pfNames
	} else if len(s.pfNames) > 0 {
		c.note(s.at, "differs: pfNames "+inline(s.pfNames)+" beside rootDevices, which alone are asked for here")
	}
	if len(from) == 0 {
		return []table{nil}
	}
	var whole []string
	var ranged []table
	seen := make(map[string]bool)
	for _, f := range from {
		pf, vfs, isRange := strings.Cut(f, "#")
		if seen[strings.ToLower(pf)] {
			c.note(s.at, fmt.Sprintf("not carried over: %q, since the one before it with that physical function decides", f))
			continue
		}
		seen[strings.ToLower(pf)] = true
		if isRange {
			ranged = append(ranged, table{{"pf", escape(pf)}, {"vf", vfs}})
		} else {
			whole = append(whole, escape(pf))
		}
	}
	if len(whole) > 0 {
		ranged = append([]table{{{"pf", whole}}}, ranged...)
	}
	return ranged
}

// classes of PCI that kinds of links have.
var linkClasses = map[string]string{"ether": "0200", "infiniband": "0207"}

func (c *sriovResource) match(s sriovSelector, kind sriovKind, pf table) table {
	pci := table{}
	class := []string{"02"}
	if c.pool.kind == sriovAccelerator {
		class = []string{"12"}
	} else if len(s.linkTypes) > 0 {
		class = nil
		for _, t := range s.linkTypes {
			if of, ok := linkClasses[t]; ok {
				class = append(class, of)
			} else {
				c.note(s.at, fmt.Sprintf("not carried over: linkTypes %q: want %q or %q", t, "ether", "infiniband"))
			}
		}
		if class == nil { // see beyond
			class = []string{"02"}
		}
		c.note(s.at, "differs: linkTypes are asked of the PCI class, not of the network interface, which is not there while a pod has it")
	}
	pci.add("class", class)
	for _, l := range []struct {
		key    string
		values []string
	}{{"vendor", s.vendors}, {"device", s.devices}, {"address", s.addresses}} {
		if len(l.values) > 0 {
			pci.add(l.key, l.values)
		}
	}
	switch rest := slices.DeleteFunc(slices.Clone(s.drivers), func(d string) bool { return d == vfioDriver }); {
	case kind == vfioKind:
		pci.add("driver", vfioDriver)
	case kind == rdmaKind || kind == vdpaKind:
		if len(s.drivers) > 0 {
			pci.add("driver", escapeAll(s.drivers))
		}
	case len(rest) > 0:
		pci.add("driver", escapeAll(rest))
	default:
		pci.add("driver", "!"+vfioDriver)
	}
	pci = append(pci, pf...)
	m := table{{"pci", pci}}
	attr := table{}
	if len(s.acpiIndexes) > 0 {
		attr.add("acpi_index", escapeAll(s.acpiIndexes))
	}
	if c.pool.kind == sriovNet && pf == nil {
		// A physical function with virtual ones in use was left out.
		attr.add("sriov_numvfs", "![1-9]*")
	}
	if len(attr) > 0 {
		m.add("attr", attr)
	}
	switch kind {
	case vfioKind:
		m.add("vfio", true)
		c.im.head("Functions of vfio-pci that are in one IOMMU group are one device here, since they can only be handed over together.")
	case rdmaKind:
		m.add("glob", "/dev/infiniband/{uverbs,umad,issm}*")
	case vdpaKind:
		m.add("glob", "/dev/vhost-vdpa-*")
	case uioKind:
		m.add("glob", "/dev/uio*")
	case kernelKind:
		c.note(c.pool.at, "differs: a function that has nodes of its own, such as those of RDMA or a PTP clock, is handed over with them")
	}
	return m
}
