package config

import "strings"

// removedKeys are keys that the language once had, by dotted key, and what to write instead. They
// help people who read old pages. exclude has the keys of match, and NAME is any name.
var removedKeys = map[string]string{
	"resource.match.usb.vendor":          `usb.id = "10c4:*" selects a vendor`,
	"resource.match.usb.product":         `usb.id = "*:ea60" selects a product, and "10c4:ea60" a product of a vendor`,
	"resource.match.pci.vendor":          `pci.id = "8086:*" selects a vendor`,
	"resource.match.pci.device":          `pci.id = "*:56c0" selects a device, and "8086:56c0" a device of a vendor`,
	"resource.match.pci.driver":          driverHint,
	"resource.match.net.driver":          driverHint,
	"resource.match.usb.manufacturer":    `attr.manufacturer = "Silicon Labs" selects devices of a manufacturer`,
	"resource.match.pci.iommu_group":     `attr.iommu_group = "12" selects the functions of a group`,
	"resource.match.mdev.name":           `attr."mdev_type/name" = "GRID T4-1Q" selects devices of a type`,
	"resource.match.mdev.iommu_group":    `attr.iommu_group = "12" selects the device of a group`,
	"resource.match.as":                  "paths outside of /dev are mounted",
	"resource.match.read_only":           permissionsHint,
	"resource.with.as":                   "what is not a device node is mounted",
	"resource.with.host_path":            `path = "/run/vendor" mounts what is not a device node`,
	"resource.with.glob":                 `path = "/dev/snd/*" may be a pattern`,
	"resource.with.read_only":            permissionsHint,
	"resource.container.cdi_devices":     `match.cdi_device = "vendor.example/class=*" makes resources of CDI devices of the host`,
	"resource.container.additional_gids": "container.owner gives the nodes to a group, and supplementalGroups of the pod adds groups to its processes",
	"resource.container.mounts":          `with = { path = "/run/vendor", container_path = "/run/vendor" } mounts what is not a device node`,
	"resource.group_by":                  `each = "usb.serial" makes one device of all hardware with the same value`,
	"list_attributes":                    "an attribute has one value",
	"resource.capacity.NAME.min":         onlyDefault,
	"resource.capacity.NAME.max":         onlyDefault,
	"resource.capacity.NAME.step":        onlyDefault,
	"resource.capacity.NAME.values":      onlyDefault,
	"resource.forget_after":              "an absent device that no container holds stays listed for ten minutes",
	"resource.container.follow":          "containers always follow a device that moves to another node",
	"resource.container.health_hold":     "the file healthy stays absent for 40 seconds after a loss",
	"resource.container.reset":           "an init container can reset the device; VFIO resets a function itself",
}

// onlyDefault replaces the keys of a capacity that limited the amounts of claims.
const onlyDefault = `a capacity is an amount, or { value = "10G", default = "1G" }`

const permissionsHint = `permissions = "r" only allows reading, which is the default of mounts, and "rw" allows writing`

const driverHint = `driver = "vfio-pci" beside pci and net, as in match.driver, is the driver of nodes, functions and interfaces`

// replacement returns what to write instead of a key of the table v that the language no longer has.
// It is empty for any other key.
func (v value) replacement(name string) string {
	path := v.path
	isOfCapacity := v.above != nil && v.above.path == "resource.capacity"
	if isOfCapacity {
		path = "resource.capacity.NAME"
	}
	key := dotted(path, name)
	return removedKeys[strings.Replace(key, "resource.exclude", "resource.match", 1)]
}
