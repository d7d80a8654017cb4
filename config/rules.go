package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Rules for combinations of the keys of a match or a resource.

// noNode reports whether the match selects neither nodes nor hardware: one device each,
// regardless of each.
func (m *Match) noNode() bool { return m.Mount || m.fromCDI() || m.Virtual != nil }

// fromCDI reports whether the match selects CDI devices of the host.
func (m *Match) fromCDI() bool { return !m.CDIDevice.Empty() }

// find is the index of the first match that is of some kind, or -1.
func (r *Resource) find(is func(m *Match) bool) int {
	return slices.IndexFunc(r.Match, func(m Match) bool {
		return is(&m)
	})
}

// checkMatch checks a match. sound is set if it has no problem so far: an unknown key may
// be a misspelled one that selects.
func (v value) checkMatch(m *Match, sound bool) {
	switch {
	case v.has("cdi_device"):
		v.wantAlone("cdi_device", "nothing else is known of the devices of CDI specs", "dangerous")
		return
	case v.has("virtual"):
		v.wantAlone("virtual", "a virtual device has no hardware and no nodes", "dangerous")
		return
	case m.Mount:
		v.wantAlone(
			"as",
			"a mount is known by its path alone",
			"glob",
			"container_path",
			"read_only",
			"required",
			"dangerous",
		)
		if !v.has("glob") {
			v.child("as").report(`"mount" without glob: want the paths of what to mount`, `glob = "/run/vendor/*.sock" is every socket there`)
		} else if m.Glob.Negative() && len(m.Glob.Alternatives()) == 0 {
			v.child("glob").report(`only patterns with "!": want one that selects`, "")
		}
		return
	}
	if !v.has("as") {
		v.refuseReadOnlyNode(m.Mount)
	}
	switch {
	case m.VFIO && !m.Has("pci", "mdev"):
		v.child("vfio").report("true without pci or mdev: want one of them", "pci = {} is any PCI function")
	case m.VFIO:
		v.wantOne(
			"vfio",
			"it selects the VFIO nodes of PCI functions and mediated devices, whatever their numbers are",
			"glob",
			"usb",
			"net",
		)
	case !v.has("glob") && !m.NamesHardware() && !v.has("subsystem") && !v.has("driver") && !v.has("attr") && sound:
		v.report("selects everything: want at least one of glob, usb, pci, net, mdev, subsystem, driver and attr", "usb = {} is any USB device")
	}
	v.wantOne(
		"mdev",
		"a mediated device is below a PCI function and has nothing below itself: only pci may be beside it",
		"usb",
		"net",
	)
}

// wantOne reports a key that is beside others.
func (v value) wantOne(name, why string, others ...string) {
	for _, other := range others {
		if v.has(name) && v.has(other) {
			v.child(name).report("beside "+other+": want one of them", why)
		}
	}
}

// wantAlone reports keys next to a key that must be alone, or with the allowed ones
// only.
func (v value) wantAlone(name, why string, allowed ...string) {
	m, _ := v.raw.(map[string]any)
	for k := range m {
		if k != name && !slices.Contains(allowed, k) && slices.Contains(v.r.language(), "resource.match."+k) {
			v.child(k).report("beside "+name+": want it in a match of its own", why)
		}
	}
}

// defaultEach is device if every match names hardware and node if none does; otherwise
// each is required.
func (v value) defaultEach(r *Resource) Each {
	if v.has("group_by") {
		return EachDevice
	}
	with := r.find((*Match).NamesHardware)
	without := r.find(func(m *Match) bool {
		return !m.NamesHardware() && !m.noNode()
	})
	if with < 0 {
		return EachNode
	} else if without < 0 {
		return EachDevice
	}
	v.report(fmt.Sprintf("no each: want it where match %d names hardware (usb, pci, net, mdev) and match %d does not",
		with+1, without+1),
		`each = "device" is the hardware with all its selected nodes, each = "node" every node by itself`)
	return ""
}

func (v value) checkResource(r *Resource) {
	v.checkEach(r)
	v.checkVirtual(r)
	v.checkNets(r)
	v.checkPaths(r)
	v.checkCDI(r)
	if r.Identity == IdentityName && len(r.Match) > 0 && r.find((*Match).fromCDI) < 0 {
		v.child("identity").report(`"name" without cdi_device: only the ID of a CDI device is made of its name`, "")
	}
	if r.Register == RegisterAlways && len(r.NameText) > 0 {
		v.child("register").report(`"always" with a variable in name: want "when-present", since a name is known with its first device`, "")
	}
	if r.Health != nil && r.Health.Open && len(r.Match) > 0 && r.find(func(m *Match) bool {
		return !m.noNode()
	}) < 0 {
		v.child("health").child("open").report("no match selects device nodes: want open for those only", "health.tcp checks that an address takes connections")
	}
}

// checkEach reports matches that are incompatible with each or group_by.
func (v value) checkEach(r *Resource) {
	each := v.child("each")
	groupBy := v.child("group_by")
	v.wantOne("group_by", "hardware that has no value for the variable stays single", "each")
	if _, numbered := wildcardNumber(r.GroupBy); numbered {
		if rule := checkSource(r.GroupBy, r); rule != "" {
			groupBy.report(quote(r.GroupBy)+" "+rule, "")
		}
	}
	for i := range r.Match {
		m := &r.Match[i]
		what := ""
		if m.Virtual != nil {
			what = "virtual"
		} else if m.fromCDI() {
			what = "cdi_device"
		}
		switch {
		case r.Each == EachNode && m.VFIO && v.has("each"):
			each.report(fmt.Sprintf(`"node" with vfio in match %d: want "device"`, i+1), "functions of one IOMMU group can only be injected together")
			return
		case what != "" && r.Each == EachAll:
			each.report(fmt.Sprintf(`"all" with %s in match %d: want each of these to be a device`,
				what, i+1), "count says how many containers may hold one at the same time")
			return
		case what != "" && r.GroupBy != "":
			groupBy.report(fmt.Sprintf("with %s in match %d: want matches of hardware that has the variable",
				what, i+1), "")
			return
		}
	}
}

func (v value) checkVirtual(r *Resource) {
	seen := make(map[string]bool)
	for i := range r.Match {
		for _, d := range r.Match[i].Virtual {
			if seen[d.Name] {
				v.r.matches[i].child("virtual").report(quote(d.Name)+" is the name of two virtual devices: want a name of its own for each", "")
			}
			seen[d.Name] = true
		}
	}
}

// checkNets: an interface is in one network namespace, so that only one container can
// have it.
func (v value) checkNets(r *Resource) {
	moved := r.find((*Match).SelectsNets)
	why := fmt.Sprintf("since an interface moves into one container (net in match %d, container.cdi)", moved+1)
	switch container := v.child("container"); {
	case moved < 0 && container.has("net_name"):
		container.child("net_name").report("no match selects network interfaces: want net without glob in one", "match.net.type = \"can\" is every CAN interface")
	case moved < 0 || !r.Container.CDI:
	case r.Count > 1:
		v.child("count").report(fmt.Sprintf("%d: want 1, %s", r.Count, why), "")
	case r.Shared:
		v.child("shared").report("true: want false, "+why, "")
	default:
		v.r.matches[moved].child("net").needs(
			"moving network interfaces of the host",
			allowNet,
			func(a Allow) bool { return a.Net },
		)
	}
}

// checkPaths: several nodes can't be at one path.
func (v value) checkPaths(r *Resource) {
	var several string
	if r.Each == EachAll {
		several = `each = "all"`
	} else if r.GroupBy != "" {
		several = "group_by"
	} else {
		return
	}
	// fixed reports a text that is the same for all nodes of a device, and not a
	// directory for them.
	fixed := func(at value, text device.Text, what, hint string) {
		if len(text) > 0 && !perDevice(text) && !strings.HasSuffix(text.String(), "/") {
			at.report(quote(text.String())+" has no variable of the device with "+several+": want a "+what, hint)
		}
	}
	const path, hint = "path of its own for each node", `a "/" at the end is a directory to put nodes in, and "/dev/serial/${kernel}" tells them apart`
	container := v.child("container")
	fixed(container.child("path"), r.Container.Path, path, hint)
	fixed(
		container.child("net_name"),
		r.Container.NetName,
		"name of its own for each interface",
		`"can-${usb.serial}" tells them apart`,
	)
	for i := range r.Match {
		if _, one := r.Match[i].Glob.Literal(); !one {
			fixed(v.r.matches[i].child("container_path"), r.Match[i].ContainerPath, path, hint)
		}
	}
}

// checkCDI reports keys that need CDI, and names that cannot be the kind of a spec.
func (v value) checkCDI(r *Resource) {
	container := v.child("container")
	if !r.Container.CDI {
		for _, name := range []string{"owner", "net_name", "hooks", "additional_gids"} {
			if container.has(name) {
				container.child(name).report("needs a CDI spec, and container.cdi is false: want true or \"auto\"", "")
			}
		}
		return
	}
	if r.Name == "" {
		return
	}
	domain, name, _ := strings.Cut(r.Name, "/")
	if len(r.NameText) > 0 {
		name = sampleName(r.NameText)
	}
	if rule := checkKind(domain, name); rule != "" {
		v.child("name").report(quote(r.Name)+" "+rule, "")
	}
	for _, n := range r.Names {
		if rule := checkKind(domain, n.Name); rule != "" {
			v.child("names").child(n.key).report(quote(n.Name)+" "+rule, "")
		}
	}
}
