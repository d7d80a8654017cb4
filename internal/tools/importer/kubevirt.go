package importer

import (
	"cmp"
	"reflect"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// kubeVirt converts permittedHostDevices of KubeVirt, and of the HyperConverged operator.
func (c *conversion) kubeVirt(sources []source) {
	c.comment("KubeVirt offers these devices itself until its configuration has externalResourceProvider: true for each of them.")
	c.comment("container.cdi needs --cdi-dir. As before, functions have to be bound to vfio-pci, and mediated devices to exist.")
	for _, s := range sources {
		var config struct{ PCIHostDevices, MediatedDevices, USB, USBHostDevices []*value }
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

// kubeVirtDevice converts an entry. virt-launcher finds the device by a variable.
func (c *conversion) kubeVirtDevice(v *value, in *workload, variable, content string) {
	var e struct {
		ResourceName, PCIVendorSelector, PCIDeviceSelector, MdevNameSelector string
		Selectors                                                            []*value
		ExternalResourceProvider, Disabled                                   bool
	}
	if !v.decode(&e) {
		return
	}
	if e.Disabled {
		v.differs("not imported: disabled")
		return
	}
	r := &resource{Name: e.ResourceName}
	r.Container.CDI, r.Container.Permissions = true, "rwm"
	r.Container.Env = map[string]any{variable + "${RESOURCE_KUBEVIRT}": content}
	if e.ExternalResourceProvider {
		r.differs(v, "differs: externalResourceProvider: another plugin offers this already: keep one of them")
	}
	switch id := cmp.Or(e.PCIVendorSelector, e.PCIDeviceSelector); {
	case id != "":
		if !fullMatch(`(?i)[0-9a-f]{4}:[0-9a-f]{4}`, id) {
			v.report("%q: want vendor and device, such as \"10de:1eb8\"", id)
		}
		r.Match = []match{{PCI: pciMatch{ID: strings.ToLower(id), Driver: []string{"vfio-pci"}}, VFIO: true}}
	case e.MdevNameSelector != "":
		// KubeVirt compares names without their spaces, which it writes as "_".
		name := strings.NewReplacer(" ", "?", "_", "?").Replace(pattern.Quote(e.MdevNameSelector))
		r.Match = []match{{Mdev: mdevMatch{name}, VFIO: true}}
	default:
		for _, s := range e.Selectors {
			if u := readSquatUSB(s, false); u.Product != "" {
				r.addUSB(u)
			}
		}
		if len(r.Match) == 0 {
			v.report("no selectors: want at least one")
			return
		}
		r.Container.Owner = map[string]any{"uid": 107, "gid": 107} // QEMU in virt-launcher
		for i := range r.Match {
			r.Match[i].Permissions, r.Match[i].Required = "", len(r.Match) > 1
		}
		if r.Each = "node"; len(r.Match) > 1 {
			r.Each = "all"
			r.differs(v, "differs: all that the selectors select is one device; KubeVirt makes sets with one of each")
		}
	}
	if !fullMatch(`[A-Za-z].*/[A-Za-z].*`, r.Name) {
		r.differs(v, "differs: injected by links: a CDI kind begins with a letter on both sides of the slash")
		if r.Container.Owner != nil {
			r.differs(v, "differs: the node keeps its owner, which links can't change: QEMU, user 107, may not be able to open it")
		}
		r.Container.CDI, r.Container.Owner = false, nil
	}
	for _, o := range c.resources { // entries of one name are one resource
		if o.Name == r.Name && o.workload == in && o.Each == r.Each && r.Each != "all" && reflect.DeepEqual(o.Container, r.Container) {
			o.Match = append(o.Match, r.Match...)
			o.comments = append(o.comments, r.comments...)
			return
		}
	}
	c.add(v, r, in)
}
