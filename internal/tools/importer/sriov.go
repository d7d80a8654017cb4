package importer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Configurations of sriov-network-device-plugin:
//
//	{"resourceList": [{
//	    "resourceName": "dpdk",
//	    "selectors": {"vendors": ["8086"], "drivers": ["vfio-pci"], "pfNames": ["ens1f0#0-3"]}
//	}]}
//
// Each function that a selector selects is a device of the first pool with such a selector.
// What a container gets depends on the driver of the function, which is why one
// selector may become several matches. Containers find the addresses in variables.

// isSRIOV recognizes a configuration by its only list.
func isSRIOV(v *value) bool { return v.get("resourceList").list() }

// sriov converts the pools of a configuration. Their order matters: a function belongs to the
// first pool that selects it, as a device belongs to the first resource of ours.
func (c *conversion) sriov(s source) {
	var config struct{ ResourceList []*value }
	s.decode(&config)
	domain := cmp.Or(c.domain, c.flags["resource-prefix"])
	if domain == "" {
		domain = "intel.com"
		c.comment(`The default domain is "intel.com", and --resource-prefix sets another: import with --domain if pods request another.`)
	}
	node := ""
	// A ConfigMap may have a file for each node, named after the node.
	isInConfigMap := strings.HasPrefix(s.path, "ConfigMap/")
	if isInConfigMap && !fullMatch(`.*\.(json|ya?ml|conf)`, s.key) {
		node = pattern.Quote(s.key)
		c.comment("The keys of the ConfigMap are taken as node names: generic-dp needs --node-name.")
	}
	for _, e := range config.ResourceList {
		c.sriovPool(e, domain, node)
	}
}

// sriovSelector selects functions: all set conditions must hold.
type sriovSelector struct {
	// Vendors and Devices are hexadecimal IDs, as lspci -n prints them.
	Vendors []string
	Devices []string
	Drivers []string
	// PCIAddresses are the addresses of the functions themselves.
	PCIAddresses []string
	// ACPIIndexes are the numbers that the firmware gives to ports of the board.
	ACPIIndexes []string
	// PFNames and RootDevices name physical functions by interface and by address, with or
	// without a range of virtual functions after "#".
	PFNames     []string
	RootDevices []string
	// LinkTypes are encapsulations: "ether" or "infiniband".
	LinkTypes []string
	// IsRDMA requires an RDMA device below the function.
	IsRDMA bool
	// NeedVhostNet adds the nodes with which a container makes a virtio interface.
	NeedVhostNet bool
}

// sriovClasses are the PCI classes of the functions of a deviceType.
var sriovClasses = map[string]string{
	"":            "02",
	"netDevice":   "02",
	"accelerator": "12",
}

// sriovPool makes the resource of a pool.
func (c *conversion) sriovPool(v *value, domain, node string) {
	var p struct {
		// ResourcePrefix is the domain; the flag --resource-prefix is its default.
		ResourcePrefix string
		ResourceName   string
		// DeviceType decides about the class of the functions.
		DeviceType string
		// ExcludeTopology leaves out the NUMA node.
		ExcludeTopology bool
		// Selectors is a selector, or a list of selectors of which one is enough.
		Selectors *value
	}
	v.decode(&p)
	class := sriovClasses[p.DeviceType]
	if class == "" {
		v.lost("deviceType %q: want netDevice or accelerator", p.DeviceType)
		return
	}
	domain = cmp.Or(p.ResourcePrefix, domain)
	r := &resource{Name: p.ResourceName}
	r.When.NodeName = node
	if p.ExcludeTopology {
		r.Numa = "none"
	}
	list := p.Selectors.items()
	if p.Selectors.mapping() {
		list = []*value{p.Selectors}
	}
	for _, e := range list {
		var s sriovSelector
		// Without one of its conditions it would select too much.
		if e.decode(&s) {
			r.addSelector(e, s, class)
		}
	}
	if len(r.Match) == 0 {
		v.lost("no selectors that can be imported")
		return
	}
	c.comment("All device nodes of a function with a driver of the kernel are injected, including RDMA and PTP clocks.")
	r.addSRIOVVariables(v, domain+"/"+p.ResourceName)
	c.comment(`sriov-network-device-plugin skips the interface of the host's default route: exclude it with "!ADDRESS" in pci.address.`)
	c.comment("Device IDs are PCI addresses as before, for Multus and CNI plugins; the flag --device-info-dir=/var/run/k8s.cni.cncf.io/devinfo/dp writes their device information.")
	c.add(v, domain, r)
}

// addSelector adds the matches of a selector: one for each driver and each physical function.
func (r *resource) addSelector(v *value, s sriovSelector, class string) {
	if len(s.RootDevices) > 0 && len(s.PFNames) > 0 {
		v.lost("pfNames and rootDevices in one selector: only one of them is tested here")
		return
	}
	var common match
	common.set("pci.class", class)
	common.set("pci.id", ids(trim0x(s.Vendors), trim0x(s.Devices))...)
	common.set("pci.address", trim0x(s.PCIAddresses)...)
	common.set("attr.acpi_index", quoteAll(s.ACPIIndexes)...)
	common.addLinkTypes(s.LinkTypes)
	functions := slices.Concat(s.RootDevices, s.PFNames)
	if len(functions) == 0 && class == "02" {
		// sriov-network-device-plugin skips physical functions with virtual ones.
		common.set("attr.sriov_numvfs", "![1-9]*")
	}
	drivers := quoteAll(s.Drivers)
	if s.IsRDMA {
		m := common
		m.set("driver", drivers...)
		m.Glob = []string{"/dev/infiniband/{uverbs,umad,issm}*"}
		r.addFunctions(m, functions)
		r.With = addOnce(r.With, companion{Path: "/dev/infiniband/rdma_cm", Optional: true})
		drivers = nil
	} else if len(drivers) == 0 {
		drivers = []string{"vfio-pci", "!vfio-pci"}
	}
	for _, driver := range drivers {
		r.addFunctions(ofDriver(common, driver), functions)
	}
	if s.NeedVhostNet {
		r.With = addOnce(r.With, companion{Path: "/dev/vhost-net", Optional: true})
		r.With = addOnce(r.With, companion{Path: "/dev/net/tun", Optional: true})
	}
}

// ofDriver returns the match with a driver, which decides what a container gets.
func ofDriver(m match, driver string) match {
	m.set("driver", driver)
	switch driver {
	case "vfio-pci":
		m.VFIO = true
	case "uio", "igb_uio":
		m.Glob = []string{"/dev/uio*"}
	}
	return m
}

// addLinkTypes adds a condition on the type of the network interface, by its number (ARPHRD in the
// kernel). The type of an interface in a pod is unknown, so the other types are excluded.
func (m *match) addLinkTypes(types []string) {
	for name, number := range map[string]string{"ether": "1", "infiniband": "32"} {
		if len(types) > 0 && !slices.Contains(types, name) {
			m.set("attr.net/*/type", "!"+number)
			m.set("attr.physfn/net/*/type", "!"+number)
		}
	}
}

// addFunctions adds a match for each physical function, or a single one if there is no condition
// on it.
func (r *resource) addFunctions(m match, functions []string) {
	if len(functions) == 0 {
		r.Match = append(r.Match, m)
	}
	for _, f := range functions {
		pf, vfs, hasRange := strings.Cut(f, "#")
		own := m // the next function may have no range
		own.set("pci.pf", pattern.Quote(pf))
		if hasRange {
			own.set("pci.vf", vfs)
		}
		r.Match = append(r.Match, own)
	}
}

// trim0x is a list of hexadecimal IDs as the language has them.
func trim0x(ids []string) []string {
	var trimmed []string
	for _, id := range ids {
		trimmed = append(trimmed, strings.TrimPrefix(strings.ToLower(id), "0x"))
	}
	return trimmed
}

// addSRIOVVariables adds the environment: the addresses, and JSON with what is
// known of each (pkg/infoprovider).
func (r *resource) addSRIOVVariables(v *value, name string) {
	variable := "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer("/", "_", ".", "_").Replace(name))
	if legal := strings.ReplaceAll(variable, "-", "_"); legal != variable {
		v.differs(`the variable %s is %s here: a shell accepts no "-" in names`, variable, legal)
		variable = legal
	}
	r.Container.Env = map[string]any{
		variable: "${pci.address}",
		variable + "_INFO": &joined{
			Value:  `"${pci.address}":{"generic":{"deviceID":"${pci.address}"}}`,
			Prefix: "{",
			Suffix: "}",
		},
	}
	v.c.comment("The variables _INFO have only the addresses of the functions, and not their nodes.")
}
