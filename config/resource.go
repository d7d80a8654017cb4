package config

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// resourceTable is the keys of [[resource]].
var resourceTable = table[Resource]{keys: []key[Resource]{
	{name: "name", read: readName},
	{name: "count", read: func(v value, r *Resource) { r.Count = v.integer(1, maxCount) }},
	{name: "match", read: func(v value, r *Resource) { r.Match = v.matches(matchTable) }, table: matchTable},
	{name: "exclude", read: func(v value, r *Resource) { r.Exclude = v.matches(excludeTable) }, table: excludeTable},
	{name: "each", read: func(v value, r *Resource) { r.Each = oneOf(v, EachDevice, EachNode) }},
	{name: "with", read: func(v value, r *Resource) { r.With = v.companions() }, table: companionTable},
	{name: "prefer", read: func(v value, r *Resource) { r.Prefer = oneOf(v, PreferNUMA, PreferPacked, PreferSpread) }},
	{name: "numa", read: func(v value, r *Resource) { r.NUMA = v.numa() }},
	{name: "identity", read: func(v value, r *Resource) { r.Identity = oneOf(v, IdentityAuto, IdentitySerial, IdentityPort) }},
	{name: "register", read: func(v value, r *Resource) { r.Register = oneOf(v, RegisterWhenPresent, RegisterAlways) }},
	{name: "forget_after", read: func(v value, r *Resource) { r.ForgetAfter = v.duration(minForgetAfter, "1m", `"10m" or "1h30m"`) }},
	// health comes after match: what is selected decides what can be opened.
	{name: "health", read: readHealth, table: healthTable},
	{name: "container", read: func(v value, r *Resource) { readTable(v, containerTable, &r.Container) }, table: containerTable},
}}

const (
	maxCount           = 10000
	minForgetAfter     = time.Minute
	defaultForgetAfter = 10 * time.Minute
)

// readResource reads one [[resource]] and fills in its defaults.
func readResource(v value) Resource {
	table, _ := v.raw.(map[string]any)
	if name, ok := table["name"].(string); ok {
		v.place += " (" + quote(name) + ")"
	}
	r := Resource{
		Place:       v.place,
		Count:       1,
		NUMA:        NUMA{Auto: true},
		Identity:    IdentityAuto,
		Register:    RegisterWhenPresent,
		Prefer:      PreferNUMA,
		ForgetAfter: defaultForgetAfter,
		Container:   Container{Permissions: defaultPermissions},
	}
	v.w.texts = nil
	before := len(v.w.problems)
	readTable(v, resourceTable, &r)
	if v.lacks("name") {
		v.report("no name: want one such as \"gpu\", or \"vendor.example/gpu\"", "")
	}
	if items, isList := elements(table["match"]); v.lacks("match") || isList && len(items) == 0 {
		v.report("no match: want at least one", `match.glob = "/dev/ttyUSB*" selects nodes by their paths`)
	}
	vfio := slices.IndexFunc(r.Match, func(m Match) bool { return m.VFIO })
	switch {
	case v.lacks("each"):
		r.Each = v.defaultEach(r.Match)
	case r.Each == EachNode && vfio >= 0:
		v.child("each").report(fmt.Sprintf(`"node" with vfio in match %d: want "device"`, vfio+1), "functions of one IOMMU group can only be handed over together")
	}
	if r.Container.CDI && r.Name != "" {
		domain, name, _ := strings.Cut(r.Name, "/")
		if rule := checkKind(domain, name); rule != "" {
			v.child("name").report(quote(r.Name)+" "+rule, "")
		}
	}
	v.w.checkTexts(&r, len(v.w.problems) == before)
	return r
}

// defaultEach is device where every match names hardware and node where none
// does; elsewhere the user has to say.
func (v value) defaultEach(matches []Match) Each {
	names := func(m Match) bool { return m.NamesHardware() }
	with := slices.IndexFunc(matches, names)
	without := slices.IndexFunc(matches, func(m Match) bool { return !names(m) })
	switch {
	case with < 0:
		return EachNode
	case without < 0:
		return EachDevice
	}
	place := func(i int) string { return strings.TrimPrefix(matches[i].Place, v.place+": ") }
	v.report("no each: want it where "+place(with)+" names hardware (usb, pci) and "+place(without)+" does not",
		`each = "device" is the hardware with all its selected nodes, each = "node" every node by itself`)
	return ""
}

// readName completes the name with the domain of the configuration.
func readName(v value, r *Resource) {
	s, ok := v.text(`a name such as "gpu" or "vendor.example/gpu"`)
	if !ok {
		return
	}
	if strings.Contains(s, "${") {
		v.report(quote(s)+" has a variable: want a name without", "several kinds of hardware are several [[resource]]")
		return
	}
	domain, name, own := strings.Cut(s, "/")
	if !own {
		domain, name = v.w.domain, s
	}
	if rule := checkNamePart(name); rule != "" {
		v.report(quote(s)+" "+rule, "")
		return
	}
	switch {
	case own:
		if rule := checkDomain(domain); rule != "" {
			v.report(quote(s)+": the domain "+rule, "")
			return
		}
	case domain == "" && !v.w.undecided:
		v.w.undecided = true // said once
		v.report(quote(s)+" has no domain: want one in the name, or for all names at the top of the file",
			`write domain = "example.com" above the first [[resource]]`)
		return
	case domain == "":
		return
	}
	r.Name = domain + "/" + name
}

// numa is v as "auto", "none" or a list of NUMA nodes.
func (v value) numa() NUMA {
	items, ok := elements(v.raw)
	if !ok {
		if _, isString := v.raw.(string); !isString {
			hint := ""
			if _, isInt := v.raw.(int64); isInt {
				hint = "one node is a list too, such as [0]"
			}
			v.mistyped(`"auto", "none" or a list of NUMA nodes such as [0, 1]`, hint)
			return NUMA{}
		}
		return NUMA{Auto: oneOf(v, "auto", "none") == "auto"}
	}
	if len(items) == 0 {
		v.report("an empty list: want at least one NUMA node", `for no node write "none"`)
	}
	var n NUMA
	for _, raw := range items {
		n.Nodes = append(n.Nodes, v.of(raw).integer(0, math.MaxInt32))
	}
	slices.Sort(n.Nodes)
	n.Nodes = slices.Compact(n.Nodes)
	return n
}

// duration is v as a duration of at least that long, which is written as
// shortest, such as the examples.
func (v value) duration(least time.Duration, shortest, examples string) time.Duration {
	want := fmt.Sprintf("of at least %q, such as %s", shortest, examples)
	s, ok := v.raw.(string)
	if !ok {
		hint := ""
		if _, isInt := v.raw.(int64); isInt {
			hint = "write it with its unit, in quotes"
		}
		v.mistyped("a duration "+want, hint)
		return least
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		v.report(quote(s)+" is not a duration: want one "+want, `the units are "s", "m" and "h"`)
	case d < least:
		v.report(fmt.Sprintf("%s is too short: want at least %q", quote(s), shortest), "")
	default:
		return d
	}
	return least
}
