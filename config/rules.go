package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// unnoded reports whether the match selects what is no node and no hardware:
// one device each, whatever each says.
func (m *Match) unnoded() bool { return m.Mount || !m.CDIDevice.Empty() || m.Virtual != nil }

// movesNet reports whether the match selects network interfaces themselves.
func (m *Match) movesNet() bool { return m.Net != nil && m.Glob.Empty() && !m.VFIO }

// defaultEach is device where every match names hardware and node where none
// does; elsewhere the user has to say.
func (v value) defaultEach(r *Resource) Each {
	if v.has("group_by") {
		return EachDevice
	}
	with := slices.IndexFunc(r.Match, func(m Match) bool { return m.NamesHardware() })
	without := slices.IndexFunc(r.Match, func(m Match) bool { return !m.NamesHardware() && !m.unnoded() })
	switch {
	case with < 0:
		return EachNode
	case without < 0:
		return EachDevice
	}
	place := func(i int) string { return strings.TrimPrefix(r.Match[i].Place, r.Place+": ") }
	v.report("no each: want it where "+place(with)+" names hardware (usb, pci, net, mdev) and "+place(without)+" does not",
		`each = "device" is the hardware with all its selected nodes, each = "node" every node by itself`)
	return ""
}

// checkResource reports what the keys of a resource can't be together.
func (v value) checkResource(r *Resource) {
	v.checkEach(r)
	v.checkVirtual(r)
	v.checkNets(r)
	v.checkPaths(r)
	v.checkCDI(r)
	if r.Register == RegisterAlways && len(r.NameText) > 0 {
		v.child("register").report(`"always" with a variable in name: want "when-present", since a name is known with its first device`, "")
	}
	if r.Health != nil && r.Health.Open && len(r.Match) > 0 && !slices.ContainsFunc(r.Match, func(m Match) bool { return !m.unnoded() }) {
		v.child("health").child("open").report("no match selects device nodes: want open for those only", "health.tcp looks whether an address takes connections")
	}
}

// checkEach reports what can't be one device in the way that is asked for.
func (v value) checkEach(r *Resource) {
	if v.has("group_by") && v.has("each") {
		v.child("group_by").report("beside each: want one of them", "hardware that has no value for the variable stays single")
	}
	if n, ok := wildcardNumber(r.GroupBy); ok {
		if rule := checkWildcards(n, r); rule != "" {
			v.child("group_by").report(quote(r.GroupBy)+" "+rule, "")
		}
	}
	for i := range r.Match {
		m := &r.Match[i]
		if r.Each == EachNode && m.VFIO && v.has("each") {
			v.child("each").report(fmt.Sprintf(`"node" with vfio in match %d: want "device"`, i+1), "functions of one IOMMU group can only be handed over together")
			return
		}
		what := ""
		switch {
		case m.Virtual != nil:
			what = "virtual"
		case !m.CDIDevice.Empty():
			what = "cdi_device"
		}
		switch {
		case what == "":
		case r.Each == EachAll:
			v.child("each").report(fmt.Sprintf(`"all" with %s in match %d: want each of these to be a device`, what, i+1), "count says how many containers may hold one at the same time")
			return
		case r.GroupBy != "":
			v.child("group_by").report(fmt.Sprintf("with %s in match %d: want matches of hardware that has the variable", what, i+1), "")
			return
		}
	}
}

// groupVariable is v as a variable by whose value hardware is put together.
func (v value) groupVariable() string {
	const want = `a variable such as "usb.serial" or "pci.slot"`
	s, ok := v.text(want)
	if !ok {
		return ""
	}
	if name, ok := strings.CutPrefix(s, "${"); ok {
		v.report(quote(s)+" is written as in a text: want the name alone", didYouMean(strings.TrimSuffix(name, "}")))
		return ""
	}
	if rule, hint := v.w.variables.check(s); rule != "" {
		v.report(quote(s)+" "+rule, strings.NewReplacer("${", "", "}", "").Replace(hint))
		return ""
	}
	found, _ := v.w.variables.get(s)
	if !found.device || found.single || strings.HasPrefix(s, varPrefix) {
		v.report(quote(s)+" is not what hardware has in common: want "+want, "")
		return ""
	}
	return s
}

func (v value) checkVirtual(r *Resource) {
	seen := make(map[string]bool)
	for i := range r.Match {
		for _, d := range r.Match[i].Virtual {
			if seen[d.Name] {
				v.child("match").report(quote(d.Name)+" is the name of two virtual devices: want a name of its own for each", "")
			}
			seen[d.Name] = true
		}
	}
}

// checkNets: an interface is in one network namespace, so that one container
// alone can have it.
func (v value) checkNets(r *Resource) {
	moved := slices.IndexFunc(r.Match, func(m Match) bool { return m.movesNet() })
	switch {
	case moved < 0:
		if v.child("container").has("net_name") {
			v.child("container").child("net_name").report("no match selects network interfaces: want net without glob in one", "match.net.type = \"can\" is every CAN interface")
		}
	case !r.Container.CDI:
	case r.Count > 1:
		v.child("count").report(fmt.Sprintf("%d with container.cdi and net in match %d: want 1, since an interface moves into one container", r.Count, moved+1), "")
	case r.Shared:
		v.child("shared").report(fmt.Sprintf("true with container.cdi and net in match %d: want false, since an interface moves into one container", moved+1), "")
	}
}

// checkPaths: what is several nodes can't be at one path.
func (v value) checkPaths(r *Resource) {
	several := r.GroupBy
	if r.Each == EachAll {
		several = `each = "all"`
	} else if several != "" {
		several = "group_by"
	}
	if several == "" {
		return
	}
	const hint = `a "/" at the end is a directory to put nodes in, and "/dev/serial/${kernel}" tells them apart`
	at := v.child("container")
	if v.w.fixed(r.Container.Path) {
		at.child("path").report(quote(r.Container.Path.String())+" has no variable of the device with "+several+": want a path of its own for each node", hint)
	}
	if v.w.fixed(r.Container.NetName) {
		at.child("net_name").report(quote(r.Container.NetName.String())+" has no variable of the device with "+several+": want a name of its own for each interface", `"can-${usb.serial}" tells them apart`)
	}
	for i := range r.Match {
		m := &r.Match[i]
		if _, one := m.Glob.Literal(); v.w.fixed(m.ContainerPath) && !one {
			v.w.matches[i].child("container_path").report(quote(m.ContainerPath.String())+" has no variable of the device with "+several+": want a path of its own for each node", hint)
		}
	}
}

// fixed reports whether a text is the same for all that a device has, and is
// no directory for it.
func (w *walk) fixed(text device.Text) bool {
	return len(text) > 0 && !w.variables.perDevice(text) && !strings.HasSuffix(text.String(), "/")
}

// checkCDI reports what only a CDI spec can say, and names that are no kind of
// a spec.
func (v value) checkCDI(r *Resource) {
	at := v.child("container")
	if !r.Container.CDI {
		for _, name := range []string{"owner", "net_name", "hooks", "additional_gids"} {
			if at.has(name) {
				at.child(name).report("without cdi: want container.cdi = true, since only a CDI spec says it to the runtime", "")
			}
		}
		return
	}
	if r.Name == "" {
		return
	}
	domain, name, _ := strings.Cut(r.Name, "/")
	if len(r.NameText) > 0 {
		name = r.NameText.Expand(func(string) (string, bool) { return "x", true }).String()
	}
	if rule := checkKind(domain, name); rule != "" {
		v.child("name").report(quote(r.Name)+" "+rule, "")
	}
	for result, name := range r.Names {
		if rule := checkKind(domain, name); rule != "" {
			v.child("names").child(result).report(quote(name)+" "+rule, "")
		}
	}
}
