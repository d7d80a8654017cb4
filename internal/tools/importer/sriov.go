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

// sriovPool is a resource of sriov-network-device-plugin.
type sriovPool struct {
	ResourcePrefix, ResourceName, DeviceType string
	ExcludeTopology                          bool
	Selectors, AdditionalInfo                *value

	at    *value
	oneOf []sriovSelector   // Selectors
	info  map[string]string // the AdditionalInfo for all devices
	node  string            // of the node, if a ConfigMap has a key for each
}

// sriovSelector selects functions: all set conditions must hold.
type sriovSelector struct {
	Vendors, Devices, Drivers               []string
	PCIAddresses, ACPIIndexes               []string
	PFNames, RootDevices                    []string
	LinkTypes, DDPProfiles, PKeys, AuxTypes []string
	VDPAType                                string
	IsRDMA, NeedVhostNet                    bool

	at *value
}

// sriov converts configurations of sriov-network-device-plugin.
func (c *conversion) sriov(sources []source) {
	n := 0
	for _, s := range sources {
		var config struct{ ResourceList []*value }
		if s.decode(&config) && len(config.ResourceList) == 0 {
			s.report("no resourceList: want at least one resource")
		}
		for _, e := range config.ResourceList {
			n++
			p := readSRIOVPool(e.named("resource", n))
			if p.ResourceName == "" {
				continue // reported
			}
			// A ConfigMap may have a file for each node.
			if len(sources) > 1 && !fullMatch(`.*\.(json|ya?ml|conf)|`, s.file) {
				p.node = s.file
				c.comment("The keys of the ConfigMap are taken as node names: generic-dp needs --node-name.")
			}
			if p.ResourcePrefix == "" {
				p.ResourcePrefix = c.sriovDomain(s.workload)
			}
			c.sriovResource(p, s.workload)
		}
	}
}

// sriovDomain is the domain of resources without resourcePrefix.
func (c *conversion) sriovDomain(in *workload) string {
	prefix := cmp.Or(c.options.Domain, in.prefix, c.first(func(w *workload) string { return w.prefix }))
	if prefix == "" {
		prefix = sriovDomain
		c.comment(`The default domain is "intel.com", and --resource-prefix sets another: set the one that pods request, or import with --domain.`)
	}
	return c.domainOr(prefix)
}

func readSRIOVPool(v *value) sriovPool {
	p := sriovPool{at: v, DeviceType: sriovNet}
	if !v.decode(&p) {
		return p
	}
	if p.ResourceName == "" {
		v.report("no resourceName: want one")
	}
	if types := []string{sriovNet, sriovAccelerator, sriovAux}; !slices.Contains(types, p.DeviceType) {
		v.get("deviceType").report("%q: want one of %q", p.DeviceType, types)
	}
	selectors := p.Selectors
	list := selectors.items()
	switch {
	case selectors.mapping():
		selectors.key = "selector"
		list = []*value{selectors}
	case selectors != nil && !selectors.list():
		selectors.report("%s: want a selector or a list of them", selectors.describe())
	case len(list) == 0:
		v.report("no selectors: want at least one")
	}
	for _, s := range list {
		p.oneOf = append(p.oneOf, readSRIOVSelector(s))
	}
	if info := p.AdditionalInfo; info != nil {
		var byAddress map[string]map[string]string
		if info.Decode(&byAddress) != nil {
			info.report(`want keys and strings for PCI addresses and "*"`)
		}
		p.info = byAddress["*"]
		if delete(byAddress, "*"); len(byAddress) > 0 {
			info.differs("not imported: values of single PCI addresses")
		}
	}
	return p
}

// The forms of values in selectors.
const fourHex = "four hexadecimal digits"

func isFourHex(s string) bool { return fullMatch(`(?i)(0x)?[0-9a-f]{4}`, s) }

func isPCIAddress(s string) bool {
	return fullMatch(`(?i)(0x)?[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]`, s)
}

// isPFRange reports whether a text is a physical function, with or without the
// numbers of virtual ones: "ens1f0#0,2-7".
func isPFRange(s string) bool {
	pf, vfs, ranged := strings.Cut(s, "#")
	_, err := pattern.Parse(pattern.Number, vfs)
	return pf != "" && (!ranged || err == nil && strings.Trim(vfs, "0123456789,-") == "")
}

// check reports the elements of a list that are not valid.
func (v *value) check(key string, list []string, valid func(string) bool, want string) {
	for _, e := range list {
		if !valid(e) {
			v.get(key).report("%q: want %s", e, want)
		}
	}
}

func readSRIOVSelector(v *value) sriovSelector {
	s := sriovSelector{at: v}
	v.decode(&s)
	v.check("vendors", s.Vendors, isFourHex, fourHex)
	v.check("devices", s.Devices, isFourHex, fourHex)
	v.check("pciAddresses", s.PCIAddresses, isPCIAddress, `an address such as "0000:3b:02.1"`)
	s.Vendors, s.Devices, s.PCIAddresses = trim0x(s.Vendors), trim0x(s.Devices), trim0x(s.PCIAddresses)
	v.check("pfNames", s.PFNames, isPFRange, `a network interface, with or without virtual functions: "ens1f0#0,2-7"`)
	v.check("rootDevices", s.RootDevices, isPFRange, `a PCI address, with or without virtual functions: "0000:3b:00.0#0,2-7"`)
	if s.VDPAType != "" && s.VDPAType != "vhost" && s.VDPAType != "virtio" {
		v.get("vdpaType").report(`%q: want "vhost" or "virtio"`, s.VDPAType)
	}
	if s.IsRDMA && s.VDPAType != "" {
		v.report("both isRdma and vdpaType: want one of them")
	}
	return s
}

// sriovKind is a kind of injection of functions.
type sriovKind struct {
	name    string   // key of _INFO
	drivers []string // of these functions; none stands for all others
	glob    string   // of nodes
	info    map[string]string
}

var (
	vfioKind   = &sriovKind{"vfio", []string{"vfio-pci"}, "", map[string]string{"dev-mount": "/dev/vfio/${pci.iommu_group}", "mount": "/dev/vfio/vfio"}}
	uioKind    = &sriovKind{"uio", []string{"uio", "igb_uio"}, "/dev/uio*", map[string]string{"mount": "${devnode}"}}
	kernelKind = &sriovKind{} // its network interface
	rdmaKind   = &sriovKind{"rdma", nil, "/dev/infiniband/{uverbs,umad,issm}*", map[string]string{
		"rdma_cm": "/dev/infiniband/rdma_cm", "rdma_dev": "${attr:infiniband_verbs/uverbs*/ibdev}", "uverbs": "${devnode:/dev/infiniband/uverbs*}",
	}}
	vdpaKind = &sriovKind{"vdpa", nil, "/dev/vhost-vdpa-*", map[string]string{"mount": "${devnode}"}}
)

// sriovResource makes the resource of a pool. One that can't be imported is
// disabled.
func (c *conversion) sriovResource(p sriovPool, in *workload) {
	r := &resource{Name: p.ResourcePrefix + "/" + p.ResourceName}
	if p.ExcludeTopology {
		r.Numa = "none"
	}
	r.When.NodeName = pattern.Quote(p.node)
	c.add(p.at, r, in)
	kinds := make(map[*sriovKind]bool)
	for _, s := range p.oneOf {
		matches, untestable := s.matches(r, p, kinds)
		r.addMatches(s.at, untestable, matches...)
	}
	if len(r.Match) == 0 {
		return
	}
	if kinds[kernelKind] {
		r.differs(p.at, "differs: device nodes of a function, such as those of RDMA or a PTP clock, are injected, too")
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

// matches returns the matches of a selector: one for each kind, and for each physical
// function with other ranges. They select too much if a condition is untestable.
func (s sriovSelector) matches(r *resource, p sriovPool, kinds map[*sriovKind]bool) (matches []match, untestable string) {
	switch {
	case len(s.DDPProfiles) > 0:
		untestable = fmt.Sprintf("ddpProfiles %q, which sysfs does not tell (pf or address selects functions with a profile)", s.DDPProfiles)
	case len(s.PKeys) > 0:
		untestable = fmt.Sprintf("pKeys %q, the partition keys of InfiniBand", s.PKeys)
	case s.VDPAType == "virtio":
		untestable = `vdpaType "virtio", whose interfaces have no nodes`
	case p.DeviceType == sriovAux && len(s.AuxTypes) > 0 && !slices.Contains(s.AuxTypes, "sf"):
		untestable = fmt.Sprintf(`auxTypes %q: want "sf"`, s.AuxTypes)
	}
	common := match{PCI: pciMatch{Vendor: s.Vendors, Device: s.Devices, Address: s.PCIAddresses}}
	if p.DeviceType == sriovAux {
		common.PCI.SRIOV, common.PCI.Address = "sf", nil
	}
	common.attr("acpi_index", quoteAll(s.ACPIIndexes)...)
	common.PCI.Class = []string{"02"}
	switch {
	case p.DeviceType == sriovAccelerator:
		common.PCI.Class = []string{"12"}
	case len(s.LinkTypes) > 0:
		// The type of an interface in a pod is unknown: the other types are excluded.
		var others []string
		for name, number := range linkTypes {
			if !slices.Contains(s.LinkTypes, name) {
				others = append(others, "!"+number)
			}
		}
		if len(others) == len(linkTypes) {
			untestable = cmp.Or(untestable, fmt.Sprintf(`linkTypes %q: want "ether" or "infiniband"`, s.LinkTypes))
			break
		}
		common.attr("net/*/type", others...)
		common.attr("physfn/net/*/type", others...)
	}
	for _, kind := range []*sriovKind{vfioKind, uioKind, kernelKind, rdmaKind, vdpaKind} {
		drivers, ok := s.driversOf(kind)
		if p.DeviceType == sriovAux {
			if ok = ok && kind != vfioKind; len(s.Drivers) == 0 {
				drivers = nil
			}
			for i := range drivers { // that of the function
				drivers[i] += ".sf"
			}
		}
		if !ok {
			continue
		}
		kinds[kind] = true
		for _, pf := range s.physicalFunctions(r, p.DeviceType) {
			m := common
			m.PCI.Driver, m.PCI.PF, m.PCI.VF = drivers, pf.PF, pf.VF
			if p.DeviceType == sriovNet && len(pf.PF) == 0 {
				// sriov-network-device-plugin skips physical functions with virtual ones.
				m.attr("sriov_numvfs", "![1-9]*")
			}
			if m.VFIO = kind == vfioKind; m.VFIO {
				s.at.c.comment("vfio-pci functions of one IOMMU group are one device, since a container can only get them together.")
			}
			if kind.glob != "" {
				m.Glob = []string{kind.glob}
			}
			matches = append(matches, m)
		}
	}
	return matches, untestable
}

// driversOf returns patterns of the drivers of a selector for a kind of function, and
// whether there are any such functions.
func (s sriovSelector) driversOf(kind *sriovKind) (drivers []string, ok bool) {
	switch {
	case s.VDPAType != "":
		return quoteAll(s.Drivers), kind == vdpaKind
	case s.IsRDMA:
		return quoteAll(s.Drivers), kind == rdmaKind
	case len(s.Drivers) == 0 && kind == vfioKind:
		return []string{"vfio-pci"}, true
	case len(s.Drivers) == 0 && kind == kernelKind:
		return []string{"!vfio-pci"}, true
	}
	for _, d := range s.Drivers {
		other := slices.Contains(vfioKind.drivers, d) || slices.Contains(uioKind.drivers, d)
		if slices.Contains(kind.drivers, d) || kind == kernelKind && !other {
			drivers = append(drivers, pattern.Quote(d))
		}
	}
	return drivers, len(drivers) > 0
}

// physicalFunctions lists the alternative conditions on the physical function: pf and vf,
// or none.
func (s sriovSelector) physicalFunctions(r *resource, deviceType string) (all []pciMatch) {
	conditions := [][]string{s.RootDevices, s.PFNames}
	if deviceType == sriovAux { // of a sub-function, the address of its physical function
		conditions = append(conditions, s.PCIAddresses)
	}
	conditions = slices.DeleteFunc(conditions, func(names []string) bool { return len(names) == 0 })
	if len(conditions) == 0 {
		return []pciMatch{{}}
	}
	for _, names := range conditions[1:] {
		r.differs(s.at, "not imported: %q: another condition on the physical function is tested", names)
	}
	var whole, seen []string
	for _, f := range conditions[0] {
		pf, vfs, ranged := strings.Cut(f, "#")
		switch id := strings.ToLower(pf); {
		case slices.Contains(seen, id):
			r.differs(s.at, "not imported: %q: an earlier one with this physical function takes precedence", f)
		case ranged:
			all = append(all, pciMatch{PF: []string{pattern.Quote(pf)}, VF: vfs})
		default:
			whole = append(whole, pattern.Quote(pf))
		}
		seen = append(seen, strings.ToLower(pf))
	}
	if len(whole) > 0 {
		all = slices.Insert(all, 0, pciMatch{PF: whole})
	}
	return all
}

func quoteAll(values []string) (quoted []string) {
	for _, v := range values {
		quoted = append(quoted, pattern.Quote(v))
	}
	return quoted
}

// addSRIOVCompanions adds the nodes that selectors request in addition to the
// function's.
func (r *resource) addSRIOVCompanions(p sriovPool) {
	add := func(wants func(sriovSelector) bool, what string, paths ...string) {
		if !slices.ContainsFunc(p.oneOf, wants) {
			return
		}
		if slices.ContainsFunc(p.oneOf, func(s sriovSelector) bool { return !wants(s) }) {
			r.differs(p.at, "differs: %s of some selectors holds for the devices of all", what)
		}
		for _, path := range paths {
			r.With = append(r.With, companion{Path: path, Optional: true})
		}
	}
	add(func(s sriovSelector) bool { return s.IsRDMA }, "rdma_cm for isRdma", "/dev/infiniband/rdma_cm")
	add(func(s sriovSelector) bool { return s.NeedVhostNet }, "needVhostNet", "/dev/vhost-net", "/dev/net/tun")
}

// addSRIOVVariables adds the environment: the addresses, and JSON with what is
// known of each, with the keys of pkg/infoprovider.
func (r *resource) addSRIOVVariables(p sriovPool, name string, kinds map[*sriovKind]bool) {
	info := map[string]any{"generic": map[string]string{"deviceID": "${pci.address}"}}
	if len(p.info) > 0 {
		extra := make(map[string]string)
		for key, v := range p.info {
			extra[escapeVariables(key)] = escapeVariables(v)
		}
		info["extra"] = extra
	}
	if !slices.ContainsFunc(p.oneOf, func(s sriovSelector) bool { return !s.NeedVhostNet }) {
		info["vhost"] = map[string]string{"net-mount": "/dev/vhost-net", "tun-mount": "/dev/net/tun"}
	}
	for kind := range kinds {
		switch {
		case len(kinds) > 1:
			r.differs(p.at, "not imported: what depends on the driver in the _INFO variable")
			continue
		case kind.name != "":
			info[kind.name] = kind.info
		}
		if kind == rdmaKind && slices.ContainsFunc(p.oneOf, func(s sriovSelector) bool { return !slices.Equal(s.LinkTypes, []string{"infiniband"}) }) {
			r.differs(p.at, "not imported: umad and issm in the _INFO variable, which only InfiniBand has for sure")
		} else if kind == rdmaKind {
			rdma := maps.Clone(kind.info)
			rdma["umad"], rdma["issm"] = "${devnode:/dev/infiniband/umad*}", "${devnode:/dev/infiniband/issm*}"
			info[kind.name] = rdma
		}
	}
	text, err := json.Marshal(info)
	if err != nil {
		panic(err) // a map of strings always encodes
	}
	name = "PCIDEVICE_" + strings.ToUpper(strings.NewReplacer("/", "_", ".", "_").Replace(name))
	if legal := strings.ReplaceAll(name, "-", "_"); legal != name {
		r.differs(p.at, `differs: the variable %s is %s here: a shell accepts no "-" in names`, name, legal)
		name = legal
	}
	r.Container.Env = map[string]any{
		name:           "${pci.address}",
		name + "_INFO": &joined{`"${pci.address}":` + string(text), "{", "}"},
	}
}
