package importer

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// rdmaDomain is the default domain of k8s-rdma-shared-dev-plugin.
const rdmaDomain = "rdma"

// rdmaFormat are configurations of k8s-rdma-shared-dev-plugin:
//
//	{"configList": [{
//	    "resourceName": "hca_shared",
//	    "rdmaHcaMax": 63,
//	    "selectors": {"vendors": ["15b3"], "linkTypes": ["infiniband"]}
//	}]}
//
// A resource has rdmaHcaMax slots, each of which is all nodes of all selected HCAs: a pool of
// ours. Selectors are lists, of which each that is set must have the value of the function,
// and devices is the old name of the selector ifNames.
type rdmaFormat struct{}

// detect recognizes a configuration by its only list.
func (rdmaFormat) detect(v *value) bool { return v.get("configList").list() }

// convert converts the entries in the order of the input. The interval of updates has no
// equivalent, since ours reacts to events.
func (rdmaFormat) convert(c *conversion, sources []source) {
	n := 0
	for _, s := range sources {
		var config struct {
			ConfigList             []*value
			PeriodicUpdateInterval *value
		}
		s.decode(&config)
		for _, e := range config.ConfigList {
			n++
			c.rdmaResource(e.named("resource", n), s.workload)
		}
	}
}

// rdmaEntry is an element of configList.
type rdmaEntry struct {
	ResourceName string
	// ResourcePrefix is the domain.
	ResourcePrefix string
	// RDMAHCAMax is how many containers may have the HCAs at once.
	RDMAHCAMax int
	// Devices are names of network interfaces.
	Devices   []string
	Selectors *value
}

// rdmaSelectors select functions: all lists that are set must have a value of the function.
type rdmaSelectors struct {
	// Vendors and DeviceIDs are hexadecimal IDs, compared as text.
	Vendors   []string
	DeviceIDs []string
	Drivers   []string
	// IfNames are names of network interfaces.
	IfNames []string
	// LinkTypes are encapsulations: "ether" or "infiniband".
	LinkTypes []string
}

// empty reports whether no selector is set, which upstream refuses (IsEmptySelector in
// pkg/utils/utils.go).
func (s rdmaSelectors) empty() bool {
	return len(slices.Concat(s.Vendors, s.DeviceIDs, s.Drivers, s.IfNames, s.LinkTypes)) == 0
}

// rdmaResource converts an entry. Its pool has no NUMA node: upstream reports none.
func (c *conversion) rdmaResource(v *value, in *workload) {
	var e rdmaEntry
	if !v.decode(&e) {
		return
	}
	if e.ResourcePrefix == "" {
		e.ResourcePrefix = c.domainOr(rdmaDomain)
	}
	s, ok := readRDMASelectors(v, e)
	if !ok {
		return
	}
	if e.RDMAHCAMax == 0 {
		v.differs("not imported: rdmaHcaMax is 0: no devices")
		return
	}
	r := &resource{
		Name:     e.ResourcePrefix + "/" + e.ResourceName,
		Each:     "all",
		Numa:     "none",
		Match:    []match{s.match()},
		mayShare: true,
	}
	// The connection manager is one node for all HCAs.
	r.With = []companion{{Path: "/dev/infiniband/rdma_cm", Permissions: "rwm"}}
	r.Container.Permissions = "rwm"
	s.reportIDs(v, r)
	r.setCount(v, e.RDMAHCAMax)
	lister := rdmaLister{
		resource:  r.Name,
		slots:     e.RDMAHCAMax,
		selectors: s,
	}
	c.before = append(c.before, lister.devices)
	c.add(v, r, in)
}

// readRDMASelectors decodes the selectors of an entry. It refuses what the plugin refuses at
// start: an entry that selects nothing, which would be every function, and one that selects
// twice (ValidateConfigs in pkg/resources/resources_manager.go).
func readRDMASelectors(v *value, e rdmaEntry) (s rdmaSelectors, ok bool) {
	if e.Selectors != nil {
		e.Selectors.decode(&s)
		e.Selectors.check("vendors", s.Vendors, isFourHex, fourHex)
		e.Selectors.check("deviceIDs", s.DeviceIDs, isFourHex, fourHex)
	}
	hasDevices := len(e.Devices) > 0
	if s.empty() && !hasDevices {
		v.report("sets neither selectors nor devices: one of them is required")
		return s, false
	}
	if !s.empty() && hasDevices {
		v.report("sets both selectors and devices: only one of them is allowed")
		return s, false
	}
	if hasDevices {
		s.IfNames = e.Devices
	}
	return s, true
}

// match is the match of the selectors.
func (s rdmaSelectors) match() match {
	m := match{Glob: []string{"/dev/infiniband/*"}}
	m.PCI.Class = []string{"02"}
	m.PCI.Vendor = trim0x(s.Vendors)
	m.PCI.Device = trim0x(s.DeviceIDs)
	m.PCI.Driver = quoteAll(s.Drivers)
	m.Net.Name = quoteAll(s.IfNames)
	m.Net.Type = quoteAll(s.LinkTypes)
	return m
}

// reportIDs reports IDs that the plugin does not find, since it compares their text with
// lower-case digits (contains in pkg/resources/device_selectors.go).
func (s rdmaSelectors) reportIDs(v *value, r *resource) {
	ids := slices.Concat(s.Vendors, s.DeviceIDs)
	for i, id := range trim0x(ids) {
		if ids[i] != id {
			r.differs(v, "differs: %q selects nothing in k8s-rdma-shared-dev-plugin, which wants lower-case digits without 0x; imported as %q", ids[i], id)
		}
	}
}

// trim0x is a list of hexadecimal IDs as the language has them.
func trim0x(ids []string) (trimmed []string) {
	for _, id := range ids {
		trimmed = append(trimmed, strings.TrimPrefix(strings.ToLower(id), "0x"))
	}
	return trimmed
}

// rdmaLister lists the device of an entry (getDevicesSpec in pkg/resources/server.go).
type rdmaLister struct {
	resource  string
	slots     int
	selectors rdmaSelectors
}

// devices lists the one device of the entry, or none if it selects no HCA.
func (l rdmaLister) devices(h *host) []Device {
	var nodes []string
	for _, hw := range h.Hardware {
		if l.selectors.selects(hw) {
			nodes = append(nodes, rdmaNodes(hw)...)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	const connectionManager = "/dev/infiniband/rdma_cm"
	if _, ok := h.nodes[connectionManager]; ok {
		nodes = append(nodes, connectionManager)
	}
	return []Device{{
		Resource: l.resource,
		Slots:    l.slots,
		Nodes:    nodes,
	}}
}

// rdmaNodes lists the nodes of an HCA. Without the nodes that the plugin requires, the
// function is none of its devices (requiredRdmaDevices in pkg/resources/rdma_device_spec.go).
func rdmaNodes(hw *device.Hardware) (nodes []string) {
	for _, n := range hw.Nodes {
		if strings.HasPrefix(n.Path, "/dev/infiniband/") {
			nodes = append(nodes, n.Path)
		}
	}
	for _, required := range []string{"umad", "uverbs"} {
		if !slices.ContainsFunc(nodes, func(n string) bool {
			return strings.Contains(n, required)
		}) {
			return nil
		}
	}
	return nodes
}

// selects reports whether the selectors select a PCI function (GetFilteredDevices in
// pkg/resources/resources_manager.go).
func (s rdmaSelectors) selects(hw *device.Hardware) bool {
	if hw.PCI == nil || hw.PCI.SRIOV == "sf" || !strings.HasPrefix(hw.PCI.Class, "02") {
		return false
	}
	name := ""
	link := ""
	if len(hw.Nets) > 0 {
		name = hw.Nets[0].Path
		link = hw.Nets[0].Net.Type
	}
	conditions := []struct {
		list []string
		text string
	}{
		{s.Vendors, hw.PCI.Vendor},
		{s.DeviceIDs, hw.PCI.Device},
		{s.Drivers, hw.PCI.Driver},
		{s.IfNames, name},
		{s.LinkTypes, link},
	}
	for _, c := range conditions {
		if len(c.list) > 0 && !slices.Contains(c.list, c.text) {
			return false
		}
	}
	return true
}
