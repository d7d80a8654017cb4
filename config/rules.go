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
		v.wantAlone("cdi_device", "a CDI spec describes no hardware or nodes to select by", "dangerous")
		return
	case v.has("virtual"):
		v.wantAlone("virtual", "a virtual device has no hardware and no nodes", "dangerous")
		return
	case m.Mount:
		v.wantAlone(
			"as",
			"a mount is selected only by its path",
			"glob",
			"container_path",
			"read_only",
			"required",
			"dangerous",
		)
		if !v.has("glob") {
			v.child("as").report(`"mount" requires glob, which selects the paths to mount`, `glob = "/run/vendor/*.sock" selects every socket there`)
		} else if m.Glob.Negative() && len(m.Glob.Alternatives()) == 0 {
			v.child("glob").report(`all patterns begin with "!": at least one must select paths`, "")
		}
		return
	}
	if !v.has("as") {
		v.refuseReadOnlyNode(m.Mount)
	}
	switch {
	case m.VFIO && !m.Has("pci", "mdev"):
		v.child("vfio").report("requires pci or mdev", "pci = {} selects any PCI function")
	case m.VFIO:
		v.wantOne(
			"vfio",
			"vfio selects the VFIO nodes of PCI functions and mediated devices, regardless of their numbers",
			"glob",
			"usb",
			"net",
		)
	case !v.has("glob") && !m.NamesHardware() && !v.has("subsystem") && !v.has("driver") && !v.has("attr") && sound:
		v.report("selects everything: want at least one of glob, usb, pci, net, mdev, subsystem, driver and attr", "usb = {} selects any USB device")
	}
	v.wantOne(
		"mdev",
		"a mediated device is part of a PCI function, so that only pci can be combined with mdev",
		"usb",
		"net",
	)
}

// wantOne reports a key that is beside others.
func (v value) wantOne(name, why string, others ...string) {
	for _, other := range others {
		if v.has(name) && v.has(other) {
			v.child(name).report("cannot be combined with "+other, why)
		}
	}
}

// wantAlone reports keys next to a key that must be alone, or with the allowed ones
// only.
func (v value) wantAlone(name, why string, allowed ...string) {
	m, _ := v.raw.(map[string]any)
	for k := range m {
		if k != name && !slices.Contains(allowed, k) && slices.Contains(v.r.language(), "resource.match."+k) {
			v.child(k).report("cannot be combined with "+name+" in one match", why)
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
	v.report(fmt.Sprintf(`missing key "each": it is required because match %d names hardware (usb, pci, net, mdev) and match %d does not`,
		with+1, without+1),
		`each = "device" is the hardware with all its selected nodes, each = "node" is each single node`)
	return ""
}

func (v value) checkResource(r *Resource) {
	v.checkEach(r)
	v.checkVirtual(r)
	v.checkNets(r)
	v.checkPaths(r)
	v.checkCDI(r)
	if r.Identity == IdentityName && len(r.Match) > 0 && r.find((*Match).fromCDI) < 0 {
		v.child("identity").report(`"name" requires cdi_device: only the ID of a CDI device can be its name`, "")
	}
	if r.Register == RegisterAlways && len(r.NameText) > 0 {
		v.child("register").report(`"always" cannot be combined with a variable in name: the name is unknown until the first device appears`, "")
	}
	if r.Health != nil && r.Health.Open && len(r.Match) > 0 && r.find(func(m *Match) bool {
		return !m.noNode()
	}) < 0 {
		v.child("health").child("open").report("no match selects device nodes, which open requires", "health.tcp checks that an address accepts connections")
	}
}

// checkEach reports matches that are incompatible with each or group_by.
func (v value) checkEach(r *Resource) {
	each := v.child("each")
	groupBy := v.child("group_by")
	v.wantOne("group_by", "without each, hardware with the same value is one device, and hardware without a value stays single", "each")
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
			each.report(fmt.Sprintf(`"node" cannot be combined with vfio in match %d: want "device"`, i+1), "functions of one IOMMU group can only be injected together")
			return
		case what != "" && r.Each == EachAll:
			each.report(fmt.Sprintf(`"all" cannot be combined with %s in match %d`,
				what, i+1), "count is the number of containers that may hold one device at the same time")
			return
		case what != "" && r.GroupBy != "":
			groupBy.report(fmt.Sprintf("cannot be combined with %s in match %d: only hardware can be grouped",
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
				v.r.matches[i].child("virtual").report(quote(d.Name)+" is already the name of another virtual device", "")
			}
			seen[d.Name] = true
		}
	}
}

// checkNets: an interface is in one network namespace, so that only one container can
// have it.
func (v value) checkNets(r *Resource) {
	moved := r.find((*Match).SelectsNets)
	why := fmt.Sprintf("because a network interface moves into a single container (net in match %d with container.cdi)", moved+1)
	switch container := v.child("container"); {
	case moved < 0 && container.has("net_name"):
		container.child("net_name").report("requires a match that selects network interfaces: net without glob", "match.net.type = \"can\" selects every CAN interface")
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
			at.report(quote(text.String())+" is the same for all nodes, but "+several+" requires a "+what, hint)
		}
	}
	const path, hint = "different path for each node", `"/dev/serial/" is a directory for the nodes, and "/dev/serial/${kernel}" is a different path for each`
	container := v.child("container")
	fixed(container.child("path"), r.Container.Path, path, hint)
	fixed(
		container.child("net_name"),
		r.Container.NetName,
		"different name for each interface",
		`"can-${usb.serial}" is a different name for each`,
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
				container.child(name).report(`requires container.cdi = true or "auto"`, "")
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
