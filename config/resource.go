package config

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
)

// maxCount is the maximum of count, in slots of one device.
const maxCount = 10000

// Hints for a missing match, and for a lone string in place of one.
const (
	matchHint    = `match.glob = "/dev/ttyUSB*" selects nodes by their paths`
	exampleMatch = `{ glob = "/dev/ttyUSB*" }`
)

// readResource reads one [[resource]] and fills in its defaults.
func readResource(v value) Resource {
	r := Resource{
		Place:      v.fullPlace(),
		Count:      1,
		NUMA:       NUMA{Auto: true},
		Identity:   IdentityAuto,
		Register:   RegisterWhenPresent,
		API:        API(cmp.Or(v.r.api.value, string(APIDevicePlugin))),
		EvictAfter: defaultEvictAfter,
		Prefer:     PreferNUMA,
		Container:  defaultContainer(),
	}
	v.r.texts = nil
	v.r.matches = nil
	sound := v.read(r.bind)
	// A missing match is reported by require, and an empty list only here.
	hasEmptyMatch := v.has("match") && v.child("match").isEmpty()
	if hasEmptyMatch && len(r.Match) == 0 {
		v.child("match").report("the list is empty: want at least one match", matchHint)
	}
	for i := range r.Match {
		// Matches inherit the count now, because no key of the resource follows.
		r.Match[i].Count = cmp.Or(r.Match[i].Count, r.Count)
	}
	// DRA injects devices only by CDI names.
	if v.r.allCDI || r.API == APIDRA {
		r.Container.CDI = true
		r.Container.AutoCDI = false
	}
	// The default depends on the matches. The checks below depend on each.
	if !v.has("each") {
		r.Each = v.defaultEach(&r)
	}
	v.checkResource(&r)
	v.checkTexts(&r, sound)
	// Variables decide which properties of the host are read. No text needs to contain this one.
	if r.GroupBy != "" {
		r.Variables = append(r.Variables, r.GroupBy)
	}
	return r
}

// bind binds the keys of a resource.
// The order of the calls is the order in which the keys are read, whatever their order in the text.
func (r *Resource) bind(t *table) {
	t.key("name", r.readName, "name of the resource, optionally with a domain other than the one above")
	t.require("name", `a name such as "gpu" or "vendor.example/gpu"`)
	// names comes after name, because it maps the results of name.
	t.key("names", r.readNames,
		"nicer names: a result of name without its domain, or a pattern of results, and the name to use instead")
	t.count("count", &r.Count, maxCount,
		"number of slots of each device: how many containers may hold it at the same time")
	tables(t, "match", &r.Match, readMatch, exampleMatch,
		"device nodes and hardware: a table, or a list of tables of which any may select a node")
	t.require("match", "at least one match", matchHint)
	tables(t, "exclude", &r.Exclude, readExclude, exampleMatch, "device nodes and hardware to leave out")
	t.key("each", r.readEach,
		`what one device is: "device" is the hardware with all its selected nodes, "node" is each single node, "all" is everything together, and a variable without ${} is all hardware with the same value`)
	words(t, "identity", &r.Identity, []Identity{IdentityAuto, IdentitySerial, IdentityPort, IdentityName},
		"which property the ID of a USB device or a CDI device consists of")
	t.key("shared", r.readShared,
		`whether other resources may offer the same device: at once (true), or so that containers hold one of the offers at a time ("exclusive")`)
	tableOf(t, "when", &r.When, readWhen, `{ node_name = "gpu-*" }`, "when the resource is active: all set conditions must hold")
	tables(t, "with", &r.With, readCompanion, `{ path = "/dev/kfd" }`,
		"companions: nodes or paths injected along with every device, once per container")
	words(t, "prefer", &r.Prefer, []Prefer{PreferNUMA, PreferPacked, PreferSpread},
		"which free devices to suggest to the kubelet")
	bind(t, "numa", &r.NUMA, value.numa,
		`NUMA nodes to report: "auto" reports the nodes of the hardware, "none" reports no node, or a list such as [0, 1]`)
	words(t, "register", &r.Register, []Register{RegisterWhenPresent, RegisterAlways},
		"when the resource is registered with the kubelet")
	words(t, "api", &r.API, apis, "the API of the kubelet through which the resource is advertised")
	bind(t, "attributes", &r.Attributes, value.claimAttributes,
		"with dra: attributes of each device by which claims select")
	bind(t, "capacity", &r.Capacity, value.capacities,
		"with dra: amounts of each device that its claims share, such as bandwidth")
	bind(t, "evict_after", &r.EvictAfter, value.evictAfter,
		"with dra: how long a device is absent before pods with a claim to it are evicted")
	t.key("features", r.readFeatures,
		"values of the healthy devices that become labels of the node, by the end of their names; needs --nfd-dir")
	tableOf(t, "health", &r.Health, readHealth, "{ open = true }", "checks of each device beyond its presence")
	tableOf(t, "container", &r.Container, readContainer, `{ path = "/dev/zigbee" }`, "what a container gets")
}

// exclusive is the value of shared for resources of which only one may use a device at a time.
const exclusive = "exclusive"

// readShared reads v as a boolean or "exclusive".
func (r *Resource) readShared(v value) {
	r.Exclusive = v.raw == exclusive
	if !r.Exclusive {
		r.Shared = v.boolean(`true, false or "exclusive"`)
	}
}

// numa reads v as "auto", "none" or a list of NUMA nodes. The nodes are sorted, without repeats.
// The zero NUMA, which reports no node, means "none".
func (v value) numa() NUMA {
	switch v.raw {
	case "auto":
		return NUMA{Auto: true}
	case "none":
		return NUMA{}
	}
	items, isList := v.list()
	if !isList {
		v.mistyped(`"auto", "none" or a list of NUMA nodes such as [0, 1]`)
	}
	var nodes []int
	for i, n := range items {
		// The kernel's numbers of nodes are never negative. -1 in sysfs means an unknown node.
		node := v.item(i, n).integer(0, math.MaxInt32)
		nodes = append(nodes, int(node))
	}
	slices.Sort(nodes)
	return NUMA{Nodes: slices.Compact(nodes)}
}

// readEach reads v as what one device is: a word, or a variable whose equal values group hardware.
func (r *Resource) readEach(v value) {
	words := []string{string(EachDevice), string(EachNode), string(EachAll)}
	text, _ := v.raw.(string)
	isWord := slices.Contains(words, text)
	isMisspelled := suggestion(text, words) != ""
	if isWord || isMisspelled {
		r.Each = Each(word(v, words))
		return
	}
	r.Each = EachDevice
	r.GroupBy = v.groupVariable()
}

// groupVariable reads v as a variable whose equal values group hardware. It returns an empty string
// if v is invalid.
func (v value) groupVariable() string {
	const variable = `a variable such as "usb.serial" or "pci.slot"`
	const want = `"device", "node", "all" or ` + variable
	return v.checked(want, func(s string) error {
		known, isKnown := variableNamed(s)
		if !isKnown {
			return broken("is not "+want, variableHint(s))
		}
		if err := v.r.checkVariable(s); err != nil {
			return err
		}
		isVirtual := strings.HasPrefix(s, device.VarPrefix)
		isOfContainer := known.from > atListing
		// A property that does not depend on the device would make one group of everything.
		if !known.perDevice || isVirtual || isOfContainer {
			return broken("is not a property that several devices share: want " + variable)
		}
		return nil
	})
}

// readWhen reads the table when. It never returns nil: a resource without the table has no When.
func readWhen(v value) *When {
	w := new(When)
	v.read(func(t *table) {
		t.values("node_name", &w.NodeName, anyText, "name of the Kubernetes node; needs --node-name")
		t.values(
			"exists",
			&w.Exists,
			existsGlob,
			`globs below /dev or /sys: each must match a file, and with "!" no file`,
		)
	})
	return w
}

const (
	// defaultEvictAfter is as long as Kubernetes tolerates an unreachable node by default.
	defaultEvictAfter = 5 * time.Minute
	never             = "never"
)

// apis are the valid values of api, at the top and in a resource.
var apis = []API{APIDevicePlugin, APIDRA}

// evictAfter reads v as a duration of at least a second, or "never", for which it returns -1.
func (v value) evictAfter() time.Duration {
	if v.raw == never {
		return -1
	}
	return v.duration(time.Second, `"30s", "5m" or "never"`)
}
