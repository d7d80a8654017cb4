package importer

import (
	"cmp"
	"reflect"
	"strings"

	"github.com/generic-dp/generic-dp/internal/order"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

// kubeVirtFormat is permittedHostDevices of KubeVirt, and of the HyperConverged operator:
//
//	permittedHostDevices:
//	  pciHostDevices:
//	  - pciVendorSelector: "10DE:1EB8"
//	    resourceName: nvidia.com/T4
//	  mediatedDevices:
//	  - mdevNameSelector: GRID T4-1Q
//	    resourceName: nvidia.com/GRID_T4-1Q
//	  usb:
//	  - resourceName: kubevirt.io/storage
//	    selectors: [{vendor: "46f4", product: "0001"}]
//
// KubeVirt only lists what is bound to vfio-pci. With externalResourceProvider, it leaves the
// resource to another plugin, and only reads the variables that the plugin sets.
type kubeVirtFormat struct{}

// detect recognizes permittedHostDevices by its lists: the same mapping is below different
// keys in KubeVirt and in the HyperConverged operator.
func (kubeVirtFormat) detect(v *value) bool {
	hasPCI := v.get("pciHostDevices").list() || v.get("mediatedDevices").list()
	return hasPCI || v.get("usb").holds("selectors") || v.get("usbHostDevices").list()
}

// convert converts the lists in the order in which KubeVirt registers them. The variables are
// those by which virt-launcher finds the devices (pkg/virt-launcher/virtwrap/device/hostdevice).
func (kubeVirtFormat) convert(c *conversion, sources []source) {
	c.comment("KubeVirt offers these devices itself until its configuration has externalResourceProvider: true for each of them.")
	c.comment("container.cdi needs --cdi-dir. As before, functions have to be bound to vfio-pci, and mediated devices to exist.")
	for _, s := range sources {
		var config struct {
			PCIHostDevices  []*value
			MediatedDevices []*value
			USB             []*value
			USBHostDevices  []*value
		}
		s.decode(&config)
		for _, e := range config.PCIHostDevices {
			c.kubeVirtDevice(e, s.workload, "PCI_RESOURCE_", "${pci.address}")
		}
		for _, e := range config.MediatedDevices {
			c.kubeVirtDevice(e, s.workload, "MDEV_PCI_RESOURCE_", "${mdev.uuid}")
		}
		for _, e := range append(config.USB, config.USBHostDevices...) {
			c.kubeVirtDevice(e, s.workload, "USB_RESOURCE_", "${attr:busnum}:${attr:devnum}")
		}
	}
}

// kubeVirtEntry is an element of one of the lists.
type kubeVirtEntry struct {
	// ResourceName has its domain.
	ResourceName string
	// PCIVendorSelector is vendor and device; HyperConverged calls it PCIDeviceSelector.
	PCIVendorSelector string
	PCIDeviceSelector string
	// MdevNameSelector is the name of a type of mediated devices.
	MdevNameSelector string
	// Selectors are USB devices, which a virtual machine gets together.
	Selectors []*value
	// ExternalResourceProvider leaves the resource to another plugin.
	ExternalResourceProvider bool
	// Disabled is of HyperConverged, whose lists have defaults that can only be disabled.
	Disabled bool
}

// kubeVirtDevice converts an entry. virt-launcher finds the device by a variable.
func (c *conversion) kubeVirtDevice(v *value, in *workload, variable, content string) {
	var e kubeVirtEntry
	if !v.decode(&e) {
		return
	}
	if e.Disabled {
		v.differs("not imported: disabled")
		return
	}
	r := &resource{Name: e.ResourceName}
	// The names of VFIO groups and USB bus nodes are their interface: links cannot follow them.
	r.Container.CDI = true
	r.Container.Permissions = "rwm"
	r.Container.Env = map[string]any{variable + "${RESOURCE_KUBEVIRT}": content}
	if e.ExternalResourceProvider {
		r.differs(v, "differs: externalResourceProvider is set, so another plugin offers this already: keep only one of them")
	}
	id := cmp.Or(e.PCIVendorSelector, e.PCIDeviceSelector)
	switch {
	case id != "":
		c.kubeVirtPCI(v, r, id)
	case e.MdevNameSelector != "":
		// KubeVirt compares names without their spaces, which it writes as "_".
		name := strings.NewReplacer(" ", "?", "_", "?").Replace(pattern.Quote(e.MdevNameSelector))
		r.Match = []match{{Mdev: mdevMatch{name}, VFIO: true}}
	case !r.addKubeVirtUSB(v, e.Selectors):
		v.report("selectors are missing: at least one is required")
		return
	}
	r.requireCDIKind(v)
	if !c.joinKubeVirt(r, in) {
		c.add(v, r, in)
	}
}

// kubeVirtPCI selects the PCI functions with an ID that are bound to vfio-pci
// (pkg/virt-handler/device-manager/pci_device.go of KubeVirt).
func (c *conversion) kubeVirtPCI(v *value, r *resource, id string) {
	if !fullMatch(`(?i)[0-9a-f]{4}:[0-9a-f]{4}`, id) {
		v.report("%q: want vendor and device, such as \"10de:1eb8\"", id)
	}
	id = strings.ToLower(id)
	const driver = "vfio-pci"
	m := match{VFIO: true}
	m.PCI.ID = id
	m.PCI.Driver = []string{driver}
	r.Match = []match{m}
	lister := functionLister{
		resource: r.Name,
		id:       id,
		driver:   driver,
	}
	c.before = append(c.before, lister.devices)
}

// addKubeVirtUSB selects USB devices, and reports whether there are any selectors.
func (r *resource) addKubeVirtUSB(v *value, selectors []*value) bool {
	for _, s := range selectors {
		if u := readSquatUSB(s, false); u.Product != "" {
			r.addUSB(u)
		}
	}
	if len(r.Match) == 0 {
		return false
	}
	const qemu = 107 // the user of QEMU in virt-launcher
	r.Container.Owner = map[string]any{"uid": qemu, "gid": qemu}
	isSet := len(r.Match) > 1
	for i := range r.Match {
		r.Match[i].Permissions = ""
		r.Match[i].Required = isSet
	}
	r.Each = "node"
	if isSet {
		r.Each = "all"
		r.differs(v, "differs: everything that the selectors select is one device; KubeVirt makes sets with one device for each selector")
	}
	return true
}

// requireCDIKind injects the devices of a resource by links if its name is no CDI kind.
func (r *resource) requireCDIKind(v *value) {
	if fullMatch(`[A-Za-z].*/[A-Za-z].*`, r.Name) {
		return
	}
	r.differs(v, "differs: injected through links, since both parts of a CDI kind begin with a letter")
	if r.Container.Owner != nil {
		r.differs(v, "differs: the node keeps its owner, which links can't change: QEMU, user 107, may not be able to open it")
	}
	r.Container.CDI = false
	r.Container.Owner = nil
}

// joinKubeVirt adds the matches of a resource to an earlier entry with the same name: they
// are one resource for KubeVirt.
func (c *conversion) joinKubeVirt(r *resource, in *workload) bool {
	for _, other := range c.resources {
		sameName := other.Name == r.Name && other.workload == in
		sameDevices := other.Each == r.Each && r.Each != "all"
		if sameName && sameDevices && reflect.DeepEqual(other.Container, r.Container) {
			other.Match = append(other.Match, r.Match...)
			other.comments = append(other.comments, r.comments...)
			return true
		}
	}
	return false
}

// functionLister lists PCI functions with an ID and a driver: a device for each.
type functionLister struct {
	resource string
	id       string // "10de:1eb8"
	driver   string
}

// devices lists the functions by address. KubeVirt names its devices after IOMMU groups, of
// which usually each has one function.
func (l functionLister) devices(h *host) (devices []Device) {
	for _, hw := range h.Hardware {
		pci := hw.PCI
		if pci == nil || pci.Vendor+":"+pci.Device != l.id || pci.Driver != l.driver {
			continue
		}
		devices = append(devices, Device{
			Resource: l.resource,
			Slots:    1,
			ID:       pci.Address,
		})
	}
	order.Sort(devices, func(a, b Device) int {
		return cmp.Compare(a.ID, b.ID)
	})
	return devices
}
