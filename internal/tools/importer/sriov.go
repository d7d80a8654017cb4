package importer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// sriovDomain is the default domain of sriov-network-device-plugin.
const sriovDomain = "intel.com"

// The values of deviceType.
const (
	sriovNet         = "netDevice"
	sriovAccelerator = "accelerator"
	sriovAux         = "auxNetDevice"
)

// sriovFormat are configurations of sriov-network-device-plugin:
//
//	{"resourceList": [{
//	    "resourceName": "dpdk",
//	    "selectors": {"vendors": ["8086"], "drivers": ["vfio-pci"], "pfNames": ["ens1f0#0-3"]}
//	}]}
//
// Each function that a selector selects is a device of the first pool with such a selector.
// What a container gets depends on the driver of the function (sriovKind), which is why one
// selector may become several matches. Containers find the addresses in variables, and more
// in a variable with JSON.
type sriovFormat struct{}

// detect recognizes a configuration by its only list.
func (sriovFormat) detect(v *value) bool { return v.get("resourceList").list() }

// convert converts the pools of all sources. Their order matters: a function belongs to the
// first pool that selects it, as a device belongs to the first resource of ours.
func (sriovFormat) convert(c *conversion, sources []source) {
	n := 0
	lister := &sriovLister{}
	for _, s := range sources {
		var config struct{ ResourceList []*value }
		if s.decode(&config) && len(config.ResourceList) == 0 {
			s.report("resourceList is empty: at least one resource is required")
		}
		for _, e := range config.ResourceList {
			n++
			p := readSRIOVPool(e.named("resource", n))
			if p.ResourceName == "" {
				continue // reported
			}
			// A ConfigMap may have a file for each node.
			isFile := fullMatch(`.*\.(json|ya?ml|conf)|`, s.file)
			if len(sources) > 1 && !isFile {
				p.node = s.file
				c.comment("The keys of the ConfigMap are taken as node names: generic-dp needs --node-name.")
			}
			if p.ResourcePrefix == "" {
				p.ResourcePrefix = c.sriovDomain(s.workload)
			}
			c.sriovResource(p, s.workload)
			lister.pools = append(lister.pools, p)
		}
	}
	if lister.comparable() {
		c.before = append(c.before, lister.devices)
	}
}

// sriovDomain is the domain of resources without resourcePrefix.
func (c *conversion) sriovDomain(in *workload) string {
	prefix := cmp.Or(c.options.Domain, in.prefix, c.first(func(w *workload) string {
		return w.prefix
	}))
	if prefix == "" {
		c.comment(`The default domain is "intel.com", and --resource-prefix sets another: set the one that pods request, or import with --domain.`)
	}
	return cmp.Or(prefix, sriovDomain)
}

// sriovKind is a kind of injection of functions.
type sriovKind struct {
	// name is the key of the _INFO variable.
	name string
	// drivers of these functions; none stands for all other drivers.
	drivers []string
	// glob selects the nodes.
	glob string
	info map[string]string
}

var (
	vfioKind = &sriovKind{
		name:    "vfio",
		drivers: []string{"vfio-pci"},
		info: map[string]string{
			"dev-mount": "/dev/vfio/${pci.iommu_group}",
			"mount":     "/dev/vfio/vfio",
		},
	}
	uioKind = &sriovKind{
		name:    "uio",
		drivers: []string{"uio", "igb_uio"},
		glob:    "/dev/uio*",
		info:    map[string]string{"mount": "${devnode}"},
	}
	// kernelKind are functions with a network interface of the kernel.
	kernelKind = &sriovKind{}
	rdmaKind   = &sriovKind{
		name: "rdma",
		glob: "/dev/infiniband/{uverbs,umad,issm}*",
		info: map[string]string{
			"rdma_cm":  "/dev/infiniband/rdma_cm",
			"rdma_dev": "${attr:infiniband_verbs/uverbs*/ibdev}",
			"uverbs":   "${devnode:/dev/infiniband/uverbs*}",
		},
	}
	vdpaKind = &sriovKind{
		name: "vdpa",
		glob: "/dev/vhost-vdpa-*",
		info: map[string]string{"mount": "${devnode}"},
	}
)

// sriovResource makes the resource of a pool. A pool that can't be imported is
// disabled.
func (c *conversion) sriovResource(p sriovPool, in *workload) {
	r := &resource{
		Name:       p.ResourcePrefix + "/" + p.ResourceName,
		addressIDs: true,
	}
	if p.ExcludeTopology {
		r.Numa = "none"
	}
	r.When.NodeName = pattern.Quote(p.node)
	c.add(p.at, r, in)
	kinds := make(map[*sriovKind]bool)
	for _, s := range p.oneOf {
		matches := s.matches(r, p, kinds)
		r.addMatches(s.at, s.untestable(p.DeviceType), matches...)
	}
	if len(r.Match) == 0 {
		return
	}
	if kinds[kernelKind] {
		r.differs(p.at, "differs: all device nodes of a function are injected, including RDMA and PTP clocks")
	}
	r.addSRIOVCompanions(p)
	r.addSRIOVVariables(p, r.Name, kinds)
	if p.DeviceType == sriovAux {
		r.differs(p.at, "differs: the ID of a sub-function is made of its physical function and number, and is not its name such as mlx5_core.sf.4, which CNI plugins expect")
	}
	if p.DeviceType == sriovNet {
		c.comment(`sriov-network-device-plugin skips the interface of the host's default route: exclude it with "!ADDRESS" in pci.address.`)
		c.comment("Device IDs are PCI addresses as before, for Multus and CNI plugins; the flag --device-info-dir=/var/run/k8s.cni.cncf.io/devinfo/dp writes their device information.")
	}
}

// linkTypes are types of network interfaces, by their number (ARPHRD in the kernel).
var linkTypes = map[string]string{"ether": "1", "infiniband": "32"}

// untestable is a condition of the selector that ours cannot test, empty if there is none.
// Without it, the matches of the selector select too much.
func (s sriovSelector) untestable(deviceType string) string {
	hasOnlyOtherTypes := len(s.AuxTypes) > 0 && !slices.Contains(s.AuxTypes, "sf")
	switch {
	case len(s.DDPProfiles) > 0:
		return fmt.Sprintf("ddpProfiles %q, which sysfs does not tell (pf or address selects functions with a profile)", s.DDPProfiles)
	case len(s.PKeys) > 0:
		return fmt.Sprintf("pKeys %q, the partition keys of InfiniBand", s.PKeys)
	case s.VDPAType == "virtio":
		return `vdpaType "virtio", whose interfaces have no nodes`
	case deviceType == sriovAux && hasOnlyOtherTypes:
		return fmt.Sprintf(`auxTypes %q: want "sf"`, s.AuxTypes)
	case deviceType != sriovAccelerator && len(s.LinkTypes) > 0 && len(s.otherLinkTypes()) == len(linkTypes):
		return fmt.Sprintf(`linkTypes %q: want "ether" or "infiniband"`, s.LinkTypes)
	}
	return ""
}

// otherLinkTypes are negated patterns of the types that the selector does not list.
func (s sriovSelector) otherLinkTypes() (others []string) {
	for _, name := range slices.Sorted(maps.Keys(linkTypes)) {
		if !slices.Contains(s.LinkTypes, name) {
			others = append(others, "!"+linkTypes[name])
		}
	}
	return others
}

// common is the part of the match that all kinds of functions share.
func (s sriovSelector) common(deviceType string) (m match) {
	m.PCI.Class = []string{"02"}
	m.PCI.Vendor = s.Vendors
	m.PCI.Device = s.Devices
	m.PCI.Address = s.PCIAddresses
	if deviceType == sriovAux {
		m.PCI.SRIOV = "sf"
		m.PCI.Address = nil
	}
	m.attr("acpi_index", quoteAll(s.ACPIIndexes)...)
	if deviceType == sriovAccelerator {
		m.PCI.Class = []string{"12"}
		return m
	}
	others := s.otherLinkTypes()
	isKnown := len(others) < len(linkTypes)
	if len(s.LinkTypes) > 0 && isKnown {
		// The type of an interface in a pod is unknown: the other types are excluded.
		m.attr("net/*/type", others...)
		m.attr("physfn/net/*/type", others...)
	}
	return m
}

// matches returns the matches of a selector: one for each kind, and for each physical
// function with other ranges.
func (s sriovSelector) matches(r *resource, p sriovPool, kinds map[*sriovKind]bool) (matches []match) {
	common := s.common(p.DeviceType)
	for _, kind := range []*sriovKind{vfioKind, uioKind, kernelKind, rdmaKind, vdpaKind} {
		drivers, ok := s.functionDrivers(kind, p.DeviceType)
		if !ok {
			continue
		}
		kinds[kind] = true
		for _, pf := range s.physicalFunctions(r, p.DeviceType) {
			m := common
			m.PCI.Driver = drivers
			m.PCI.PF = pf.PF
			m.PCI.VF = pf.VF
			if p.DeviceType == sriovNet && len(pf.PF) == 0 {
				// sriov-network-device-plugin skips physical functions with virtual ones.
				m.attr("sriov_numvfs", "![1-9]*")
			}
			m.VFIO = kind == vfioKind
			if m.VFIO {
				s.at.c.comment("vfio-pci functions of one IOMMU group are one device, since a container can only get them together.")
			}
			if kind.glob != "" {
				m.Glob = []string{kind.glob}
			}
			matches = append(matches, m)
		}
	}
	return matches
}

// addSRIOVCompanions adds the nodes that selectors request in addition to the
// function's.
func (r *resource) addSRIOVCompanions(p sriovPool) {
	isRDMA := func(s sriovSelector) bool { return s.IsRDMA }
	needsVhost := func(s sriovSelector) bool { return s.NeedVhostNet }
	r.addSRIOVNodes(p, isRDMA, "rdma_cm for isRdma", "/dev/infiniband/rdma_cm")
	r.addSRIOVNodes(p, needsVhost, "needVhostNet", "/dev/vhost-net", "/dev/net/tun")
}

// addSRIOVNodes adds nodes if a selector requests them.
func (r *resource) addSRIOVNodes(p sriovPool, requests func(sriovSelector) bool, what string, paths ...string) {
	requested := 0
	for _, s := range p.oneOf {
		if requests(s) {
			requested++
		}
	}
	if requested == 0 {
		return
	}
	if requested < len(p.oneOf) {
		r.differs(p.at, "differs: %s of some selectors applies to the devices of all selectors", what)
	}
	for _, path := range paths {
		r.With = append(r.With, companion{Path: path, Optional: true})
	}
}

// addSRIOVVariables adds the environment: the addresses, and JSON with what is
// known of each, with the keys of pkg/infoprovider.
func (r *resource) addSRIOVVariables(p sriovPool, name string, kinds map[*sriovKind]bool) {
	text, err := json.Marshal(r.sriovInfo(p, kinds))
	if err != nil {
		panic(err) // a map of strings always encodes
	}
	name = "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer("/", "_", ".", "_").Replace(name))
	if legal := strings.ReplaceAll(name, "-", "_"); legal != name {
		r.differs(p.at, `differs: the variable %s is %s here: a shell accepts no "-" in names`, name, legal)
		name = legal
	}
	r.Container.Env = map[string]any{
		name: "${pci.address}",
		name + "_INFO": &joined{
			Value:  `"${pci.address}":` + string(text),
			Prefix: "{",
			Suffix: "}",
		},
	}
}

// sriovInfo is what the _INFO variable says about a device.
func (r *resource) sriovInfo(p sriovPool, kinds map[*sriovKind]bool) map[string]any {
	info := map[string]any{"generic": map[string]string{"deviceID": "${pci.address}"}}
	if len(p.info) > 0 {
		extra := make(map[string]string)
		for key, v := range p.info {
			extra[escapeVariables(key)] = escapeVariables(v)
		}
		info["extra"] = extra
	}
	withoutVhost := func(s sriovSelector) bool { return !s.NeedVhostNet }
	if !slices.ContainsFunc(p.oneOf, withoutVhost) {
		info["vhost"] = map[string]string{"net-mount": "/dev/vhost-net", "tun-mount": "/dev/net/tun"}
	}
	if len(kinds) > 1 {
		r.differs(p.at, "not imported: the parts of the _INFO variable that depend on the driver")
		return info
	}
	for kind := range kinds {
		if kind == rdmaKind {
			info[kind.name] = r.rdmaInfo(p)
		} else if kind.name != "" {
			info[kind.name] = kind.info
		}
	}
	return info
}

// rdmaInfo is what the _INFO variable says about an HCA.
func (r *resource) rdmaInfo(p sriovPool) map[string]string {
	mayBeEther := func(s sriovSelector) bool {
		return !slices.Equal(s.LinkTypes, []string{"infiniband"})
	}
	info := maps.Clone(rdmaKind.info)
	if slices.ContainsFunc(p.oneOf, mayBeEther) {
		r.differs(p.at, "not imported: umad and issm in the _INFO variable, since functions without InfiniBand may not have these nodes")
		return info
	}
	info["umad"] = "${devnode:/dev/infiniband/umad*}"
	info["issm"] = "${devnode:/dev/infiniband/issm*}"
	return info
}
