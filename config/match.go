package config

import (
	"fmt"
	"slices"
)

// selectors are the keys of a match that select nodes and hardware.
var selectors = []string{"glob", "usb", "pci", "net", "mdev", "subsystem", "driver", "attr"}

// matchTable is the keys of match; excludeTable those that select.
var (
	matchTable = table[Match]{name: "match", keys: slices.Concat(
		// as comes first: it decides what glob and container_path may be.
		[]key[Match]{
			{name: "as", form: oneOfWords(asMount), read: func(v value, m *Match) { oneOf(v, asMount); m.Mount = true }},
		},
		selectKeys(),
		[]key[Match]{
			{name: "vfio", form: anyBoolean, read: func(v value, m *Match) { m.VFIO = v.boolean() }},
			{name: "cdi_device", form: conditionForm, read: func(v value, m *Match) { m.CDIDevice = v.values(cdiName) }},
			{name: "virtual", form: oneOrMore(eitherOf(anyText, tableForm("virtual"))), read: func(v value, m *Match) { m.Virtual = v.virtual() }, table: virtualTable},
			{name: "container_path", form: anyText, read: func(v value, m *Match) { m.ContainerPath = v.variables(m.containerRole()) }},
			{name: "permissions", form: anyText, read: func(v value, m *Match) { m.Permissions = v.permissions() }},
			{name: "read_only", form: anyBoolean, read: func(v value, m *Match) { m.ReadOnly = v.boolean() }},
			{name: "required", form: anyBoolean, read: func(v value, m *Match) { m.Required = v.boolean() }},
			{name: "dangerous", form: anyBoolean, read: func(v value, m *Match) {
				if m.Dangerous = v.boolean(); m.Dangerous {
					v.needs("a device that reaches the host itself", allowDangerous, func(a Allow) bool { return a.Dangerous })
				}
			}},
		},
	)}
	excludeTable = table[Match]{name: "exclude", keys: selectKeys()}
)

// asMount is the one value of as.
const asMount = "mount"

func selectKeys() []key[Match] {
	return []key[Match]{
		{name: "glob", form: conditionForm, read: func(v value, m *Match) {
			if m.Glob = v.values(m.globKind()); m.Mount {
				v.needsMounts(m.Glob)
			}
		}},
		{name: "usb", form: tableForm("usb"), read: func(v value, m *Match) { m.USB = v.conditions(usbTable) }, table: usbTable},
		{name: "pci", form: tableForm("pci"), read: func(v value, m *Match) { m.PCI = v.conditions(pciTable) }, table: pciTable},
		{name: "net", form: tableForm("net"), read: func(v value, m *Match) { m.Net = v.conditions(netTable) }, table: netTable},
		{name: "mdev", form: tableForm("mdev"), read: func(v value, m *Match) { m.MDev = v.conditions(mdevTable) }, table: mdevTable},
		{name: "subsystem", form: conditionForm, read: func(v value, m *Match) { m.Subsystem = v.values(plain) }},
		{name: "driver", form: conditionForm, read: func(v value, m *Match) { m.Driver = v.values(plain) }},
		{name: "attr", form: ownKeys(conditionForm), read: func(v value, m *Match) { m.Attr = v.attributes(wildAttribute) }},
	}
}

// globKind: a node is below /dev, what is mounted is anywhere.
func (m *Match) globKind() kind {
	if m.Mount {
		return pathGlob
	}
	return nodeGlob
}

// containerRole: mounts are the same for every container.
func (m *Match) containerRole() role {
	if m.Mount {
		return companionPath
	}
	return nodePath
}

// matches is v as one match or a list of them.
func (v value) matches(t table[Match]) []Match {
	tables := v.tables("glob")
	out := make([]Match, 0, len(tables))
	for _, e := range tables {
		m := Match{Place: e.fullPlace(), ReadOnly: true}
		readTable(e, t, &m)
		m.ReadOnly = m.ReadOnly && m.Mount
		e.checkMatch(&m)
		out = append(out, m)
		if t.name == matchTable.name {
			v.w.matches = append(v.w.matches, e)
		}
	}
	return out
}

// misspelled reports whether the table v has a key that is none of these, which
// may have been meant for what seems to be missing.
func (v value) misspelled(names []string) bool {
	m, _ := v.raw.(map[string]any)
	for name := range m {
		if !slices.Contains(names, name) {
			return true
		}
	}
	return false
}

// checkMatch reports what the keys of a match can't be together.
func (v value) checkMatch(m *Match) {
	switch {
	case v.has("cdi_device"):
		v.wantAlone("cdi_device", "it selects devices of CDI specs, and nothing else is known of them", "dangerous")
		return
	case v.has("virtual"):
		v.wantAlone("virtual", "a virtual device has no hardware and no nodes", "dangerous")
		return
	case m.Mount:
		v.wantAlone("as", "what is mounted is known by its path alone", "glob", "container_path", "read_only", "required", "dangerous")
		if !v.has("glob") {
			v.child("as").report(`"mount" without glob: want the paths of what to mount`, `glob = "/run/vendor/*.sock" is every socket there`)
		} else if m.Glob.Negative() && len(m.Glob.Alternatives()) == 0 {
			v.child("glob").report(`only patterns with "!": want one that selects`, "")
		}
		return
	case v.has("read_only") && !v.has("as"):
		v.child("read_only").report(`a device node is not read-only: want permissions, or as = "mount"`, `permissions = "r" is a node for reading`)
	}
	switch vfio := v.child("vfio"); {
	case m.VFIO && !v.has("pci") && !v.has("mdev"):
		vfio.report("true without pci or mdev: want one of them", "pci = {} is any PCI function")
	case m.VFIO && v.has("glob"):
		vfio.report("true with glob: want one of them", "vfio = true selects the VFIO nodes of the functions, whatever their numbers are")
	case m.VFIO && v.has("usb"):
		vfio.report("true with usb: want it with pci or mdev alone", "a USB device has no VFIO nodes")
	case m.VFIO && v.has("net"):
		vfio.report("true with net: want it with pci or mdev alone", "a function that VFIO has is no network interface of the host")
	case !slices.ContainsFunc(selectors, v.has) && !v.misspelled(matchTable.names()):
		v.report("selects everything: want at least one of glob, usb, pci, net, mdev, subsystem, driver and attr", "usb = {} is any USB device")
	}
	for _, other := range []string{"usb", "net"} {
		if m.MDev != nil && v.has(other) {
			v.child("mdev").report(fmt.Sprintf("with %s: want one of them", other), "a mediated device is below a PCI function and has nothing below itself: pci may stand beside it")
		}
	}
}

// wantAlone reports what stands beside a key that stands alone, or with the
// allowed ones only.
func (v value) wantAlone(name, why string, allowed ...string) {
	for _, k := range matchTable.names() {
		if k != name && v.has(k) && !slices.Contains(allowed, k) {
			v.child(k).report("beside "+name+": want it in a match of its own", why)
		}
	}
}
