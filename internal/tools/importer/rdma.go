package importer

import "strings"

// rdmaDomain is the default domain of k8s-rdma-shared-dev-plugin.
const rdmaDomain = "rdma"

// rdma converts configurations of k8s-rdma-shared-dev-plugin: a resource has
// rdmaHcaMax slots, each of which is all nodes of all selected HCAs.
func (c *conversion) rdma(sources []source) {
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

func (c *conversion) rdmaResource(v *value, in *workload) {
	var e struct {
		ResourceName, ResourcePrefix string
		RDMAHCAMax                   int
		Devices                      []string
		Selectors                    *value
	}
	if !v.decode(&e) {
		return
	}
	if e.ResourcePrefix == "" {
		e.ResourcePrefix = c.domainOr(rdmaDomain)
	}
	var s struct{ Vendors, DeviceIDs, Drivers, IfNames, LinkTypes []string }
	if e.Selectors != nil {
		e.Selectors.decode(&s)
		e.Selectors.check("vendors", s.Vendors, isFourHex, fourHex)
		e.Selectors.check("deviceIDs", s.DeviceIDs, isFourHex, fourHex)
	}
	if e.RDMAHCAMax == 0 {
		v.differs("not imported: rdmaHcaMax is 0: no devices")
		return
	}
	m := match{Glob: []string{"/dev/infiniband/*"}}
	m.PCI = pciMatch{Class: []string{"02"}, Vendor: trim0x(s.Vendors), Device: trim0x(s.DeviceIDs), Driver: quoteAll(s.Drivers)}
	m.Net.Name, m.Net.Type = quoteAll(append(e.Devices, s.IfNames...)), s.LinkTypes
	r := &resource{Name: e.ResourcePrefix + "/" + e.ResourceName, Each: "all", Numa: "none", Match: []match{m}, mayShare: true}
	r.With = []companion{{Path: "/dev/infiniband/rdma_cm", Permissions: "rwm"}}
	r.Container.Permissions = "rwm"
	r.setCount(v, e.RDMAHCAMax)
	c.add(v, r, in)
}

// trim0x is a list of hexadecimal IDs as the language has them.
func trim0x(ids []string) (trimmed []string) {
	for _, id := range ids {
		trimmed = append(trimmed, strings.TrimPrefix(strings.ToLower(id), "0x"))
	}
	return trimmed
}
