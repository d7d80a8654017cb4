package config

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// resourceTable is the keys of [[resource]].
var resourceTable = table[Resource]{name: "resource", keys: []key[Resource]{
	{name: "name", form: anyText, want: `one such as "gpu", or "vendor.example/gpu"`, read: readName},
	// names comes after name: it maps what that results in.
	{name: "names", form: ownKeys(anyText), read: readNames},
	{name: "count", form: integerForm(1, maxCount), read: func(v value, r *Resource) { r.Count = int(v.integer(1, maxCount)) }},
	{
		name: "match", form: oneOrMore(tableForm("match")), table: matchTable,
		want: "at least one", hint: matchHint, read: readMatches,
	},
	{name: "exclude", form: oneOrMore(tableForm("exclude")), read: func(v value, r *Resource) { r.Exclude = v.matches(excludeTable) }, table: excludeTable},
	{name: "each", form: oneOfWords(EachDevice, EachNode, EachAll), read: func(v value, r *Resource) { r.Each = oneOf(v, EachDevice, EachNode, EachAll) }},
	{name: "group_by", form: anyText, read: func(v value, r *Resource) { r.GroupBy = v.groupVariable() }},
	{name: "shared", form: anyBoolean, read: func(v value, r *Resource) { r.Shared = v.boolean() }},
	{name: "when", form: tableForm("when"), read: readWhen, table: whenTable},
	{name: "with", form: oneOrMore(tableForm("with")), read: func(v value, r *Resource) { r.With = v.companions() }, table: companionTable},
	{name: "prefer", form: oneOfWords(PreferNUMA, PreferPacked, PreferSpread), read: func(v value, r *Resource) { r.Prefer = oneOf(v, PreferNUMA, PreferPacked, PreferSpread) }},
	{name: "numa", form: numaForm, read: func(v value, r *Resource) { r.NUMA = v.numa() }},
	{name: "identity", form: oneOfWords(IdentityAuto, IdentitySerial, IdentityPort), read: func(v value, r *Resource) { r.Identity = oneOf(v, IdentityAuto, IdentitySerial, IdentityPort) }},
	{name: "register", form: oneOfWords(RegisterWhenPresent, RegisterAlways), read: func(v value, r *Resource) { r.Register = oneOf(v, RegisterWhenPresent, RegisterAlways) }},
	{name: "forget_after", form: anyText, read: func(v value, r *Resource) { r.ForgetAfter = v.duration(minForgetAfter, "1m", `"10m" or "1h30m"`) }},
	// health comes after match: what is selected decides what can be opened.
	{name: "health", form: tableForm("health"), read: readHealth, table: healthTable},
	{name: "container", form: tableForm("container"), read: func(v value, r *Resource) { readTable(v, containerTable, &r.Container) }, table: containerTable},
}}

// matchHint is how to write a match.
const matchHint = `match.glob = "/dev/ttyUSB*" selects nodes by their paths`

// numaForm is "auto", "none" or a list of NUMA nodes.
var numaForm = eitherOf(oneOfWords("auto", "none"), listOf(integerForm(0, math.MaxInt32)))

const (
	maxCount           = 10000
	minForgetAfter     = time.Minute
	defaultForgetAfter = 10 * time.Minute
)

// readResource reads one [[resource]] and fills in its defaults.
func readResource(v value) Resource {
	r := Resource{
		Place:       v.fullPlace(),
		Count:       1,
		NUMA:        NUMA{Auto: true},
		Identity:    IdentityAuto,
		Register:    RegisterWhenPresent,
		Prefer:      PreferNUMA,
		ForgetAfter: defaultForgetAfter,
		Container:   Container{Permissions: defaultPermissions},
	}
	v.w.texts, v.w.matches = nil, nil
	before := len(v.w.reports)
	readTable(v, resourceTable, &r)
	r.Container.CDI = r.Container.CDI || v.w.allCDI
	if v.lacks("each") {
		r.Each = v.defaultEach(&r)
	}
	v.checkResource(&r)
	v.w.checkTexts(&r, len(v.w.reports) == before)
	return r
}

func readMatches(v value, r *Resource) {
	if items, isList := elements(v.raw); isList && len(items) == 0 {
		v.report("an empty list: want at least one match", matchHint)
	}
	r.Match = v.matches(matchTable)
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
		n.Nodes = append(n.Nodes, int(v.of(raw).integer(0, math.MaxInt32)))
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
