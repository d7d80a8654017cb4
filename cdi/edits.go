// Package cdi makes what a container gets out of what is offered: container
// edits in the terms of the Container Device Interface. They reach a
// container in one of two ways. Plainly, Answer turns them into the nodes and
// mounts of an Allocate response. With CDI, Build puts them into a spec file
// that Writer keeps current, and the container is given qualified names that
// the runtime looks up at every start of the container. Both ways take their
// paths, permissions and mounts from the same place and cannot disagree.
//
// A stale spec entry would hand the next device of that number to the wrong
// container, so entries of devices that went away go first, and a file that
// can't be rewritten without them is removed.
package cdi

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/device"
)

// given is what one device brings into one container: nodes, interfaces and
// mounts with nothing left open.
type given struct {
	nodes  []givenNode
	nets   []device.OfferedNet
	mounts []device.Mount
}

// givenNode is an offered node at its path in the container.
type givenNode struct {
	device.OfferedNode
	path string
}

// Edits are the container edits of one device that is handed over by a CDI
// name: its nodes and network interfaces, as they are now, what comes with
// them, and its mounts without the optional ones whose source exists does not
// find (nil: all are there). A path that only an Allocate call could complete
// is an error, since the spec is written before one comes.
//
// Interfaces that have moved into a container are left out: they stay in the
// network namespace of its pod, and the runtime would look for them on the
// host when the container restarts.
func Edits(o device.Offer, exists func(hostPath string) error) (specs.ContainerEdits, error) {
	g, err := resolve(o, nil, exists)
	if err != nil {
		return specs.ContainerEdits{}, err
	}
	e := g.edits(o.Owner)
	for _, h := range o.Hooks {
		hook := &specs.Hook{HookName: h.Name, Path: h.Path, Args: h.Args, Env: h.Env}
		if h.Timeout > 0 {
			hook.Timeout = &h.Timeout
		}
		e.Hooks = append(e.Hooks, hook)
	}
	e.AdditionalGIDs = o.AdditionalGIDs
	if o.Moved && len(e.DeviceNodes)+len(e.Hooks)+len(e.Mounts)+len(e.AdditionalGIDs) == 0 {
		// An entry must have edits. Runtimes skip the group 0.
		e.AdditionalGIDs = []uint32{0}
	}
	return e, nil
}

// byName reports whether a device is handed over by its CDI name. A device
// that may bring nothing into a container, optional mounts at most, can't be
// in a spec (an entry without edits makes the whole file invalid) and is handed
// over plainly. This must not depend on which mounts are there at the moment,
// or the spec and the answer could disagree.
func byName(o device.Offer) bool {
	return o.CDI && (len(o.Nodes)+len(o.Nets)+len(o.Hooks)+len(o.AdditionalGIDs) > 0 || o.Moved ||
		slices.ContainsFunc(o.Mounts, func(m device.Mount) bool { return !m.Optional }))
}

// resolve completes the paths of an offer with vars, the variables that
// depend on the container, and leaves out optional mounts that are missing.
func resolve(o device.Offer, vars map[string]string, exists func(hostPath string) error) (given, error) {
	var g given
	for _, n := range o.Nodes {
		p, err := complete(n.Path, vars)
		if err != nil {
			return given{}, fmt.Errorf("path of %q in the container: %w", n.HostPath, err)
		}
		if p == "" {
			p = n.HostPath
		}
		g.nodes = append(g.nodes, givenNode{OfferedNode: n, path: path.Clean(p)})
	}
	names := map[string]string{} // host's by that in the container
	for _, n := range o.Nets {
		if o.Moved {
			break
		}
		if n.Name == "" {
			n.Name = n.HostName
		}
		if other, ok := names[n.Name]; ok {
			return given{}, fmt.Errorf("interfaces %q and %q would both be %q in the container", other, n.HostName, n.Name)
		}
		names[n.Name] = n.HostName
		g.nets = append(g.nets, n)
	}
	for _, m := range o.Mounts {
		if m.Optional && exists != nil && exists(m.HostPath) != nil {
			continue
		}
		m.ContainerPath = path.Clean(m.ContainerPath)
		g.mounts = append(g.mounts, m)
	}
	return g, nil
}

// complete fills in the last variables of a text.
func complete(t device.Text, vars map[string]string) (string, error) {
	t = t.Expand(func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	})
	if open := t.Vars(); len(open) > 0 {
		return "", fmt.Errorf("%q has no value for ${%s} here", t, open[0])
	}
	return t.String(), nil
}

// position gives the variables of the device at index among count devices of
// one container.
func position(index, count int) map[string]string {
	return map[string]string{device.IndexVar: strconv.Itoa(index), device.CountVar: strconv.Itoa(count)}
}

// edits says the same as a CDI spec does. A node carries its numbers, so that
// the runtime need not find it; mounts have the options that the CRI gives to
// those of an Allocate response, which makes both ways of delivery alike.
func (g given) edits(owner *device.Owner) specs.ContainerEdits {
	var e specs.ContainerEdits
	for _, n := range g.nodes {
		node := &specs.DeviceNode{
			Path:        n.path,
			HostPath:    n.HostPath,
			Type:        string(n.Type),
			Major:       int64(n.Major),
			Minor:       int64(n.Minor),
			Permissions: n.Permissions,
		}
		if owner != nil {
			node.UID, node.GID = owner.UID, owner.GID
			if owner.Mode != nil {
				mode := os.FileMode(*owner.Mode)
				node.FileMode = &mode
			}
		}
		e.DeviceNodes = append(e.DeviceNodes, node)
	}
	for _, n := range g.nets {
		e.NetDevices = append(e.NetDevices, &specs.LinuxNetDevice{HostInterfaceName: n.HostName, Name: n.Name})
	}
	for _, m := range g.mounts {
		access := "rw"
		if m.ReadOnly {
			access = "ro"
		}
		e.Mounts = append(e.Mounts, &specs.Mount{
			HostPath:      m.HostPath,
			ContainerPath: m.ContainerPath,
			Options:       []string{"rbind", "rprivate", access},
		})
	}
	return e
}
