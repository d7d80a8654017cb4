package main

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/tools/fleet"
	"github.com/generic-dp/generic-dp/matchers"
)

// permissions lists the nodes of all offers with owner, group and mode, as they are in a container:
// container.owner replaces the values of the host. The list is empty, not nil, without nodes.
func (f *flags) permissions(resources []matchers.Offered) permissionsReport {
	r := permissionsReport{Permissions: []fleet.Permission{}}
	for _, m := range resources {
		for _, o := range m.Offers {
			for _, n := range o.Nodes {
				p, err := f.permission(n.HostPath, o.Owner)
				if err != nil {
					continue // it has disappeared meanwhile
				}
				p.Resource = m.Name
				p.ID = o.ID
				r.Permissions = append(r.Permissions, p)
			}
		}
	}
	return r
}

// permission reads owner and mode of a node. owner is nil if the configuration does not replace
// anything. Resource and ID are left to the caller.
func (f *flags) permission(path string, owner *device.Owner) (fleet.Permission, error) {
	p := fleet.Permission{Path: path}
	var stat unix.Stat_t
	if err := unix.Stat(f.here(path), &stat); err != nil {
		return p, err
	}
	p.UID = stat.Uid
	p.GID = stat.Gid
	// The kind of the file and the bits above the permissions do not matter here.
	p.Mode = uint32(stat.Mode) & 0o777
	if owner == nil {
		return p, nil
	}
	// The runtime sets these when it makes the node in the container.
	replace(&p.UID, owner.UID)
	replace(&p.GID, owner.GID)
	replace(&p.Mode, owner.Mode)
	return p, nil
}

// replace replaces a value if there is another one. other is nil if there is none.
func replace(value, other *uint32) {
	if other != nil {
		*value = *other
	}
}

// table writes one line for each node of a device.
func (r permissionsReport) table(w io.Writer, _ bool) error {
	tab := newTable(w, "RESOURCE", "ID", "PATH", "UID", "GID", "MODE")
	for _, p := range r.Permissions {
		tab.row(p.Resource, p.ID, p.Path, fmt.Sprint(p.UID), fmt.Sprint(p.GID), fmt.Sprintf("%04o", p.Mode))
	}
	return tab.Flush()
}
