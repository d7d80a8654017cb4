package importer

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// sriovPool is a resource of sriov-network-device-plugin.
type sriovPool struct {
	// ResourcePrefix is the domain; the flag --resource-prefix is its default.
	ResourcePrefix string
	ResourceName   string
	// DeviceType decides about the class of the functions.
	DeviceType string
	// ExcludeTopology leaves out the NUMA node.
	ExcludeTopology bool
	// Selectors is a selector, or a list of selectors of which one is enough.
	Selectors *value
	// AdditionalInfo is text for the _INFO variable, by address or for "*".
	AdditionalInfo *value

	at *value
	// oneOf are the Selectors.
	oneOf []sriovSelector
	// info is the AdditionalInfo for all devices.
	info map[string]string
	// node is the name of the node, if a ConfigMap has a key for each node.
	node string
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
	// DDPProfiles are packages that Intel's network cards load; devlink knows them.
	DDPProfiles []string
	// PKeys are partition keys of InfiniBand.
	PKeys []string
	// AuxTypes are types of auxiliary devices; "sf" is a sub-function.
	AuxTypes []string
	// VDPAType is "vhost" or "virtio": which driver a vDPA device has.
	VDPAType string
	// IsRDMA requires an RDMA device below the function.
	IsRDMA bool
	// NeedVhostNet adds the nodes with which a container makes a virtio interface.
	NeedVhostNet bool

	at *value
}

// readSRIOVPool decodes an element of resourceList, and reports what the plugin refuses.
func readSRIOVPool(v *value) sriovPool {
	p := sriovPool{at: v, DeviceType: sriovNet}
	if !v.decode(&p) {
		return p
	}
	if p.ResourceName == "" {
		v.report("resourceName is missing")
	}
	types := []string{sriovNet, sriovAccelerator, sriovAux}
	if !slices.Contains(types, p.DeviceType) {
		v.get("deviceType").report("%q: want one of %q", p.DeviceType, types)
	}
	for _, s := range p.selectors() {
		p.oneOf = append(p.oneOf, readSRIOVSelector(s))
	}
	if p.AdditionalInfo != nil {
		p.readInfo()
	}
	return p
}

// selectors lists the selectors: Selectors is one of them, or a list.
func (p *sriovPool) selectors() []*value {
	selectors := p.Selectors
	if selectors.mapping() {
		selectors.key = "selector"
		return []*value{selectors}
	}
	if selectors != nil && !selectors.list() {
		selectors.report("%s: want a selector or a list of them", selectors.describe())
		return nil
	}
	list := selectors.items()
	if len(list) == 0 {
		p.at.report("selectors are missing: at least one is required")
	}
	return list
}

// readInfo reads additionalInfo. What it has for single addresses has no equivalent: a variable
// of ours has one form for all devices.
func (p *sriovPool) readInfo() {
	info := p.AdditionalInfo
	var byAddress map[string]map[string]string
	if info.Decode(&byAddress) != nil {
		info.report(`want keys and strings for PCI addresses and "*"`)
	}
	p.info = byAddress["*"]
	delete(byAddress, "*")
	if len(byAddress) > 0 {
		info.differs("not imported: values of single PCI addresses")
	}
}

// fourHex describes the form of IDs in selectors.
const fourHex = "four hexadecimal digits"

// isFourHex reports whether a text is an ID of a vendor or a device.
func isFourHex(s string) bool { return fullMatch(`(?i)(0x)?[0-9a-f]{4}`, s) }

// isPCIAddress reports whether a text is a complete PCI address. Domains have more than four
// digits below Intel VMD controllers.
func isPCIAddress(s string) bool {
	return fullMatch(`(?i)(0x)?[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]`, s)
}

// isPFRange reports whether a text is a physical function, with or without the
// numbers of virtual ones: "ens1f0#0,2-7".
func isPFRange(s string) bool {
	pf, vfs, ranged := strings.Cut(s, "#")
	if !ranged {
		return pf != ""
	}
	_, err := pattern.Parse(pattern.Number, vfs)
	hasOnlyNumbers := strings.Trim(vfs, "0123456789,-") == ""
	return pf != "" && err == nil && hasOnlyNumbers
}

// check reports the elements of a list that are not valid.
func (v *value) check(key string, list []string, valid func(string) bool, want string) {
	for _, e := range list {
		if !valid(e) {
			v.get(key).report("%q: want %s", e, want)
		}
	}
}

// readSRIOVSelector decodes a selector, and reports values that can select nothing.
func readSRIOVSelector(v *value) sriovSelector {
	s := sriovSelector{at: v}
	v.decode(&s)
	v.check("vendors", s.Vendors, isFourHex, fourHex)
	v.check("devices", s.Devices, isFourHex, fourHex)
	v.check("pciAddresses", s.PCIAddresses, isPCIAddress, `an address such as "0000:3b:02.1"`)
	s.Vendors = trim0x(s.Vendors)
	s.Devices = trim0x(s.Devices)
	s.PCIAddresses = trim0x(s.PCIAddresses)
	v.check("pfNames", s.PFNames, isPFRange, `a network interface, with or without virtual functions: "ens1f0#0,2-7"`)
	v.check("rootDevices", s.RootDevices, isPFRange, `a PCI address, with or without virtual functions: "0000:3b:00.0#0,2-7"`)
	types := []string{"", "vhost", "virtio"}
	if !slices.Contains(types, s.VDPAType) {
		v.get("vdpaType").report(`%q: want "vhost" or "virtio"`, s.VDPAType)
	}
	if s.IsRDMA && s.VDPAType != "" {
		v.report("sets both isRdma and vdpaType: only one of them is allowed")
	}
	return s
}

// driversOf returns patterns of the drivers of a selector for a kind of function, and
// whether there are any such functions.
func (s sriovSelector) driversOf(kind *sriovKind) (drivers []string, ok bool) {
	if s.VDPAType != "" {
		return quoteAll(s.Drivers), kind == vdpaKind
	}
	if s.IsRDMA {
		return quoteAll(s.Drivers), kind == rdmaKind
	}
	if len(s.Drivers) == 0 {
		switch kind {
		case vfioKind:
			return []string{"vfio-pci"}, true
		case kernelKind:
			return []string{"!vfio-pci"}, true
		}
	}
	for _, d := range s.Drivers {
		isUserspace := slices.Contains(vfioKind.drivers, d) || slices.Contains(uioKind.drivers, d)
		isOfKind := slices.Contains(kind.drivers, d) || kind == kernelKind && !isUserspace
		if isOfKind {
			drivers = append(drivers, pattern.Quote(d))
		}
	}
	return drivers, len(drivers) > 0
}

// functionDrivers are the drivers of a selector for a kind of function. A sub-function has
// the driver of its function with the suffix ".sf".
func (s sriovSelector) functionDrivers(kind *sriovKind, deviceType string) (drivers []string, ok bool) {
	drivers, ok = s.driversOf(kind)
	if deviceType != sriovAux {
		return drivers, ok
	}
	if len(s.Drivers) == 0 {
		drivers = nil
	}
	for i := range drivers {
		drivers[i] += ".sf"
	}
	return drivers, ok && kind != vfioKind
}

// physicalFunctions lists the alternative conditions on the physical function: pf and vf,
// or none.
func (s sriovSelector) physicalFunctions(r *resource, deviceType string) (all []pciMatch) {
	conditions := [][]string{s.RootDevices, s.PFNames}
	if deviceType == sriovAux {
		// The address of a sub-function is the address of its physical function.
		conditions = append(conditions, s.PCIAddresses)
	}
	conditions = slices.DeleteFunc(conditions, func(names []string) bool {
		return len(names) == 0
	})
	if len(conditions) == 0 {
		return []pciMatch{{}}
	}
	for _, names := range conditions[1:] {
		r.differs(s.at, "not imported: %q, since another condition on the physical function is tested", names)
	}
	var whole []string
	var seen []string
	for _, f := range conditions[0] {
		pf, vfs, ranged := strings.Cut(f, "#")
		id := strings.ToLower(pf)
		switch {
		case slices.Contains(seen, id):
			r.differs(s.at, "not imported: %q, since an earlier entry with this physical function takes precedence", f)
		case ranged:
			all = append(all, pciMatch{PF: []string{pattern.Quote(pf)}, VF: vfs})
		default:
			whole = append(whole, pattern.Quote(pf))
		}
		seen = append(seen, id)
	}
	if len(whole) > 0 {
		all = slices.Insert(all, 0, pciMatch{PF: whole})
	}
	return all
}

// quoteAll makes patterns that match the values literally.
func quoteAll(values []string) (quoted []string) {
	for _, v := range values {
		quoted = append(quoted, pattern.Quote(v))
	}
	return quoted
}
