package matchers

import (
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// addMount puts one of container.mounts into the offer.
func (o *offering) addMount(m *config.Mount) {
	host, err := o.path(m.HostPath, o.s.subject())
	if err != nil {
		o.problem("host_path of a mount: %v", err)
		return
	}
	at, err := o.path(m.ContainerPath, o.s.subject())
	if err != nil {
		o.problem("container_path of mount %s: %v", host, err)
		return
	}
	mount := device.Mount{HostPath: host.String(), ContainerPath: at.String(), ReadOnly: m.ReadOnly, Optional: m.Optional}
	if !mount.Optional && !o.exists(mount.HostPath) {
		o.problem("mount %s is missing", mount.HostPath)
	}
	o.mount(mount)
}

// addPath puts one of the paths into the offer that a match selected to be
// mounted.
func (o *offering) addPath(p pathPick) {
	text := p.match.ContainerPath
	if len(text) == 0 {
		text = o.r.Container.Path
	}
	at, err := o.inContainer(text, p.path, &subject{paths: []pathPick{p}})
	if err != nil {
		o.problem("path of %s in the container: %v", p.path, err)
		return
	}
	if open := at.Vars(); len(open) > 0 {
		o.problem("path of %s in the container: ${%s} is not known where something is mounted", p.path, open[0])
		return
	}
	o.mount(device.Mount{HostPath: p.path, ContainerPath: at.String(), ReadOnly: p.match.ReadOnly})
	o.paths = append(o.paths, at)
}

// mount adds a bind mount if it is allowed. Paths of the host that have
// variables, or were found by a glob, are known here and nowhere before.
func (o *offering) mount(m device.Mount) {
	if !o.opts.Allow.AllowsMount(m.HostPath) {
		o.problem("mount %s is not allowed: want --allow=mount:%s or a directory above it", m.HostPath, m.HostPath)
		return
	}
	if o.take(device.Literal(m.ContainerPath), part{source: "mount " + m.HostPath}) {
		o.offer.Mounts = append(o.offer.Mounts, m)
	}
}

// exists reports whether there is something at a path of the host.
func (b *builder) exists(hostPath string) bool {
	return b.ix.at(hostPath) != nil || b.ix.isDir(hostPath) || b.opts.Exists == nil || b.opts.Exists(hostPath)
}
