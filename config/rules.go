package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Rules for combinations of the keys of a match or a resource.

// fromCDI reports whether the match selects CDI devices of the host.
func (m *Match) fromCDI() bool { return !m.CDIDevice.Empty() }

// isVirtual reports whether the match defines devices without hardware.
func (m *Match) isVirtual() bool { return m.Virtual != nil }

// hasNode reports whether the match selects nodes or hardware. Each other thing that it selects is one
// device, regardless of the key each.
func (m *Match) hasNode() bool { return !m.Mount && !m.fromCDI() && !m.isVirtual() }

// find returns the index of the first match that the predicate accepts, or -1. The index is also
// the index of the match in reader.matches while the resource is being read.
func (r *Resource) find(accept func(m *Match) bool) int {
	for i := range r.Match {
		if accept(&r.Match[i]) {
			return i
		}
	}
	return -1
}

// checkMatch reports invalid combinations of the keys of a match. sound is set if the match
// has no problem so far: otherwise an unknown key may be a misspelled selector.
func (v value) checkMatch(m *Match, sound bool) {
	switch {
	// The key in the text decides and not the field, which is empty if the value is invalid.
	case v.has("cdi_device"):
		v.wantAlone("cdi_device", "a CDI spec describes no hardware or nodes to select by", "dangerous", "count")
		return
	case v.has("virtual"):
		v.wantAlone("virtual", "a virtual device has no hardware and no nodes", "dangerous", "count")
		return
	case m.Mount:
		const why = "a mount is selected only by its path"
		v.wantAlone("a glob outside of /dev", why, "glob", "container_path", "permissions", "required", "dangerous", "count")
		return
	case m.VFIO && !m.Has("pci", "mdev"):
		v.child("vfio").report("requires pci or mdev", "pci = {} selects any PCI function")
	case m.VFIO:
		const why = "vfio selects the VFIO nodes of PCI functions and mediated devices, regardless of their numbers"
		v.refuseBoth("vfio", why, "glob", "usb", "net")
	case sound && v.selectsEverything(m):
		v.report(
			"selects everything: want at least one of glob, usb, pci, net, mdev, subsystem, driver and attr",
			"usb = {} selects any USB device",
		)
	}
	const why = "a mediated device is part of a PCI function, so that only pci can be combined with mdev"
	v.refuseBoth("mdev", why, "usb", "net")
}

// selectsEverything reports whether a match has no key that selects. Any key does, even with an invalid
// value: that problem is already reported.
func (v value) selectsEverything(m *Match) bool {
	selectors := []string{"glob", "subsystem", "driver", "attr"}
	return !m.NamesHardware() && !slices.ContainsFunc(selectors, v.has)
}

// refuseBoth reports a key that cannot be combined with any of the others. why is the hint. Each
// combination is a problem of its own.
func (v value) refuseBoth(name, why string, others ...string) {
	if !v.has(name) {
		return
	}
	for _, other := range others {
		if v.has(other) {
			v.child(name).report("cannot be combined with "+other, why)
		}
	}
}

// wantAlone reports keys of a match that cannot be combined with a key: all except the
// allowed ones. Unknown keys are reported elsewhere.
func (v value) wantAlone(name, why string, allowed ...string) {
	// The random order does not matter, because problems are sorted by position.
	for key := range v.table() {
		isAllowed := key == name || slices.Contains(allowed, key)
		isKnown := slices.Contains(v.r.language(), "resource.match."+key)
		if isKnown && !isAllowed {
			v.child(key).report("cannot be combined with "+name+" in one match", why)
		}
	}
}

// defaultEach returns the value of each where it is not written: device if every match names
// hardware, and node if none does. Otherwise it reports that each is required, and returns an empty
// value, which no check refuses again.
func (v value) defaultEach(r *Resource) Each {
	// Mounts, CDI devices and virtual devices do not count: each has no meaning for them.
	withHardware := r.find((*Match).NamesHardware)
	if withHardware < 0 {
		return EachNode
	}
	withoutHardware := r.find(func(m *Match) bool {
		return m.hasNode() && !m.NamesHardware()
	})
	if withoutHardware < 0 {
		return EachDevice
	}
	text := fmt.Sprintf(
		`missing key "each": it is required because match %d names hardware (usb, pci, net, mdev) and match %d does not`,
		withHardware+1,
		withoutHardware+1,
	)
	hint := `each = "device" is the hardware with all its selected nodes`
	isVFIO := func(m *Match) bool {
		return m.VFIO
	}
	if r.find(isVFIO) < 0 {
		hint += `, each = "node" is each single node`
	}
	v.report(text, hint)
	return ""
}

// checkResource reports invalid combinations of the keys of a resource. It runs after all keys, and
// after the defaults that depend on several keys.
func (v value) checkResource(r *Resource) {
	v.checkEach(r)
	v.checkVirtual(r)
	v.checkNets(r)
	v.checkCDI(r)
	v.checkCapacity(r)
	if r.Identity == IdentityName && r.find((*Match).fromCDI) < 0 {
		v.child("identity").report(`"name" requires cdi_device: only the ID of a CDI device can be its name`)
	}
	// A plugin registers with the name of its resource (RegisterRequest.resource_name in
	// k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1), so that the name must be known before.
	if r.Register == RegisterAlways && len(r.NameText) > 0 {
		v.child("register").report(
			`"always" cannot be combined with a variable in name: the name is unknown until the first device appears`,
		)
	}
}

// checkEach reports matches that are incompatible with each.
func (v value) checkEach(r *Resource) {
	each := v.child("each")
	// Hardware can be grouped by a wildcard only if each of its nodes has one.
	if r.GroupBy != "" && !r.provides(r.GroupBy) {
		each.violates(r.GroupBy, notProvided(r.GroupBy))
	}
	isOther := func(m *Match) bool {
		return m.isVirtual() || m.fromCDI()
	}
	index := r.find(isOther)
	if index >= 0 && (r.Each == EachAll || r.GroupBy != "") {
		text := fmt.Sprintf("%q cannot be combined with match %d: only hardware can be grouped",
			cmp.Or(r.GroupBy, string(r.Each)), index+1)
		each.report(text)
	}
	// A default of "node" is not reported, since vfio needs pci or mdev, with which the default is
	// "device".
	index = r.find(func(m *Match) bool {
		return m.VFIO
	})
	if index >= 0 && r.Each == EachNode && v.has("each") {
		text := fmt.Sprintf(`"node" cannot be combined with vfio in match %d`, index+1)
		each.report(text, "functions of one IOMMU group can only be injected together")
	}
}

// checkVirtual reports virtual devices of the same name: the name is their ID.
func (v value) checkVirtual(r *Resource) {
	// The names of one resource must differ, even in different matches.
	seen := make(map[string]bool)
	for i := range r.Match {
		for _, d := range r.Match[i].Virtual {
			if seen[d.Name] {
				v.r.matches[i].child("virtual").report(quote(d.Name) + " is already the name of another virtual device")
			}
			seen[d.Name] = true
		}
	}
}

// checkNets reports keys that contradict the move of a network interface. An interface is in
// one network namespace (network_namespaces(7)), so that only one container can have it.
func (v value) checkNets(r *Resource) {
	index := r.find((*Match).SelectsNets)
	// Without CDI, an interface does not move: the container only learns its name, which any number
	// of containers may know.
	if index < 0 || !r.Container.CDI {
		return
	}
	why := fmt.Sprintf(
		"because a network interface moves into a single container (net in match %d with container.cdi)",
		index+1,
	)
	several := r.find(func(m *Match) bool { return m.SelectsNets() && m.Count > 1 })
	if several >= 0 {
		// The position is the count that applies: the count of the match, or else of the resource.
		at := v
		if v.r.matches[several].has("count") {
			at = v.r.matches[several]
		}
		at.child("count").report(fmt.Sprintf("%d: want 1, %s", r.Match[several].Count, why))
		return
	}
	if r.Shared {
		v.child("shared").report(`true: want false or "exclusive", ` + why)
		return
	}
	// The interface disappears from the host while a container has it.
	v.r.matches[index].child("net").needs("moving network interfaces of the host", allowNet, false)
}

// checkCDI reports keys that require CDI, and resource names that cannot be the kind of a CDI
// spec.
func (v value) checkCDI(r *Resource) {
	if !r.Container.CDI {
		v.child("container").refuseKeysOfCDI()
		return
	}
	if r.Name == "" {
		return
	}
	// The kind of the generated spec is the name of the resource, or each of its nicer names.
	domain, name, _ := strings.Cut(r.Name, "/")
	if len(r.NameText) > 0 {
		name = sampleName(r.NameText)
	}
	v.child("name").violates(r.Name, checkKind(domain, name))
	for _, n := range r.Names {
		v.child("names").child(n.key).violates(n.Name, checkKind(domain, n.Name))
	}
}

// refuseKeysOfCDI reports the keys of a container that only a CDI spec can express.
func (v value) refuseKeysOfCDI() {
	for _, name := range []string{"owner", "net_name", "hooks"} {
		if v.has(name) {
			v.child(name).report(`requires container.cdi = true or "auto"`)
		}
	}
}
