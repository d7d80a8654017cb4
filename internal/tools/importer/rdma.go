package importer

import "cmp"

// Configurations of k8s-rdma-shared-dev-plugin:
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

// isRDMA recognizes a configuration by its only list.
func isRDMA(v *value) bool { return v.get("configList").list() }

// rdma converts the entries of a configuration. The interval of updates has no equivalent, since
// ours reacts to events.
func (c *conversion) rdma(s source) {
	var config struct {
		ConfigList             []*value
		PeriodicUpdateInterval *value
	}
	s.decode(&config)
	for _, e := range config.ConfigList {
		c.rdmaEntry(e)
	}
}

// rdmaEntry converts an entry. Its pool has no NUMA node: upstream reports none.
func (c *conversion) rdmaEntry(v *value) {
	var e struct {
		ResourceName string
		// ResourcePrefix is the domain.
		ResourcePrefix string
		// RDMAHCAMax is how many containers may have the HCAs at once.
		RDMAHCAMax int
		// Devices are names of network interfaces.
		Devices   []string
		Selectors *value
	}
	if !v.decode(&e) {
		return
	}
	if e.RDMAHCAMax == 0 {
		v.lost("rdmaHcaMax is 0: no devices")
		return
	}
	// Without a selector, upstream refuses the entry (ValidateConfigs in
	// pkg/resources/resources_manager.go).
	m, ok := rdmaMatch(v, e.Selectors, e.Devices)
	if !ok {
		return
	}
	r := &resource{
		Name:  e.ResourceName,
		Each:  "all",
		Numa:  "none",
		Match: []match{m},
	}
	// The connection manager is one node for all HCAs.
	r.With = []companion{{Path: "/dev/infiniband/rdma_cm", Permissions: "rwm"}}
	r.Container.Permissions = "rwm"
	r.Count = validCount(v, e.RDMAHCAMax)
	c.add(v, cmp.Or(e.ResourcePrefix, c.domain, "rdma"), r)
}

// rdmaMatch is the match of the selectors of an entry. ok is false if they cannot be imported.
func rdmaMatch(v, selectors *value, devices []string) (m match, ok bool) {
	var s struct {
		// Vendors and DeviceIDs are hexadecimal IDs.
		Vendors   []string
		DeviceIDs []string
		Drivers   []string
		// IfNames are names of network interfaces.
		IfNames []string
		// LinkTypes are encapsulations: "ether" or "infiniband".
		LinkTypes []string
	}
	if selectors != nil && !selectors.decode(&s) {
		return m, false
	}
	s.IfNames = append(s.IfNames, devices...)
	m.Glob = []string{"/dev/infiniband/*"}
	m.set("pci.class", "02")
	m.set("pci.id", ids(trim0x(s.Vendors), trim0x(s.DeviceIDs))...)
	m.set("driver", quoteAll(s.Drivers)...)
	m.set("net.name", quoteAll(s.IfNames)...)
	m.set("net.type", quoteAll(s.LinkTypes)...)
	if m.PCI["id"] == nil && m.Driver == nil && m.Net == nil {
		v.lost("neither selectors nor devices: one of them is required")
		return m, false
	}
	return m, true
}
