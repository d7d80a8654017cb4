package importer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// companions are nodes that selectors ask for beside the device's own.
func (c *sriovResource) companions() (with []table) {
	some := func(has func(s sriovSelector) bool, what string) bool {
		n := 0
		for _, s := range c.pool.selectors {
			if has(s) {
				n++
			}
		}
		if n > 0 && n < len(c.pool.selectors) {
			c.note(c.pool.at, "differs: "+what+" of some selectors is given along with the devices of all")
		}
		return n > 0
	}
	node := func(path string) table { return table{{"path", path}, {"optional", true}} }
	if some(func(s sriovSelector) bool { return s.isRDMA }, "rdma_cm for isRdma") {
		with = append(with, node("/dev/infiniband/rdma_cm"))
	}
	if some(func(s sriovSelector) bool { return s.needVhostNet }, "needVhostNet") {
		with = append(with, node("/dev/vhost-net"), node("/dev/net/tun"))
	}
	return with
}

// env is the environment of the containers: the addresses, and what is known
// of each in JSON.
func (c *sriovResource) env(prefix string) table {
	full := strings.ReplaceAll(c.pool.fullName(prefix), "/", "_")
	key := "PCIDEVICE_" + strings.ToUpper(strings.ReplaceAll(full, ".", "_"))
	if strings.Contains(key, "-") {
		legal := strings.ReplaceAll(key, "-", "_")
		c.note(c.pool.at, fmt.Sprintf("differs: the variable %s has become %s: a shell takes no %q in names", key, legal, "-"))
		key = legal
	}
	return table{
		{key, "${pci.address}"},
		{key + "_INFO", inlined{{"value", c.info()}, {"prefix", "{"}, {"suffix", "}"}}},
	}
}

// info is the JSON of one device: `"ADDRESS":{...}`, with the keys that
// sriov-network-device-plugin writes (pkg/infoprovider), sorted.
func (c *sriovResource) info() string {
	parts := map[string]string{"generic": `{"deviceID":"${pci.address}"}`}
	if c.pool.others > 0 {
		c.note(c.pool.at, fmt.Sprintf("not carried over: additionalInfo for %d single addresses", c.pool.others))
	}
	if len(c.pool.info) > 0 {
		extra := make(map[string]string, len(c.pool.info))
		for _, f := range c.pool.info {
			extra[f.key] = f.value.node.Value
		}
		text, err := json.Marshal(extra)
		if err != nil {
			panic(err) // a map of strings always has a JSON
		}
		parts["extra"] = literal(string(text))
	}
	if !slices.ContainsFunc(c.pool.selectors, func(s sriovSelector) bool { return !s.needVhostNet }) {
		parts["vhost"] = `{"net-mount":"/dev/vhost-net","tun-mount":"/dev/net/tun"}`
	}
	missing := ""
	switch kind := c.kinds[0]; {
	case len(c.kinds) > 1:
		missing = "what depends on the driver"
	case kind == vfioKind:
		parts["vfio"] = `{"dev-mount":"/dev/vfio/${pci.iommu_group}","mount":"/dev/vfio/vfio"}`
	case kind == uioKind:
		parts["uio"] = `{"mount":"${devnode}"}`
	case kind == vdpaKind:
		parts["vdpa"] = `{"mount":"${devnode}"}`
	case kind == rdmaKind:
		missing = "the names of RDMA devices"
	}
	if missing != "" {
		c.note(c.pool.at, "not carried over: "+missing+" in the variable that ends in _INFO")
	}
	keys := slices.Sorted(maps.Keys(parts))
	words := make([]string, len(keys))
	for i, k := range keys {
		words[i] = fmt.Sprintf("%q:%s", k, parts[k])
	}
	return `"${pci.address}":{` + strings.Join(words, ",") + "}"
}
