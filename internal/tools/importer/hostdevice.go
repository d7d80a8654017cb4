package importer

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/pattern"
)

// Plain containers name the device nodes that they get. Unlike a device plugin, nothing
// counts them: any number of containers may have a node. The import makes a resource for
// each node, with as many slots as containers in the input use it, because a single slot
// would keep all but one of them from starting.
//
// A path that is a link of udev, such as /dev/serial/by-id/..., identifies the hardware well:
// it is kept as the glob of the match, and the container has the node at the same path as
// before.

// placeholderDomain is the domain of resources that have no names in the input.
const placeholderDomain = "example.com"

// hostDevice is a device that a plain container gets: of Docker Compose, Podman or a pod.
type hostDevice struct {
	at *value
	// in is the workload of the container, and user its name.
	in   *workload
	user string
	// host is the path on the host, or the qualified name of a CDI device.
	host string
	// container is the path in the container, empty if it is the same.
	container string
	// permissions are some of "rwm", empty for the default of ours.
	permissions string
	// optional is set if the container starts without the device.
	optional bool
	// hasVariable is set if the default of a variable is used.
	hasVariable bool
}

// parseHostDevice parses HOST[:CONTAINER[:PERMISSIONS]], as docker run --device has it.
// Variables with a default have that default.
func parseHostDevice(text string) (d hostDevice) {
	text, d.hasVariable = useDefault(text)
	if isCDIName(text) {
		d.host = text
		return d
	}
	// A path may have colons, as /dev/serial/by-path/pci-0000:00:14.0-usb-0:2:1.0 has: the
	// path in the container begins with the next "/".
	parts := regexp.MustCompile(`^(/.*?)(?::(/.*?))?(?::([rwm]+))?$`).FindStringSubmatch(text)
	if parts == nil {
		d.host = text
		return d
	}
	d.host = strings.TrimSuffix(parts[1], "/")
	d.container = strings.TrimSuffix(parts[2], "/")
	d.permissions = parts[3]
	return d
}

// cdiName matches the qualified name of a CDI device: vendor, class and name
// (ParseQualifiedName in tags.cncf.io/container-device-interface/pkg/parser).
const cdiName = `[A-Za-z]([\w.-]*[A-Za-z0-9])?/[A-Za-z]([\w-]*[A-Za-z0-9])?=[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?`

// isCDIName reports whether a text is the qualified name of a CDI device.
func isCDIName(text string) bool { return fullMatch(cdiName, text) }

// useDefault replaces a variable with a default by the default: "${ZIGBEE:-/dev/ttyACM0}".
func useDefault(text string) (replaced string, changed bool) {
	variable := regexp.MustCompile(`\$\{\w+:?-([^}]*)\}`)
	replaced = variable.ReplaceAllString(text, "$1")
	return replaced, replaced != text
}

// addHostDevices makes a resource for each device, or reports why there is none. Containers
// that use the same device share it.
func (c *conversion) addHostDevices(list []hostDevice) {
	c.comment("Pods request these resources instead of privileged: true and hostPath volumes. The number of slots is the number of containers here that use the device.")
	if c.options.Domain == "" {
		c.differs("The domain %q is a placeholder: import with --domain.", placeholderDomain)
	}
	var added []*resource
	for _, d := range list {
		r := c.hostResource(d)
		if r == nil {
			continue
		}
		r.workload = d.in
		same := slices.IndexFunc(added, func(other *resource) bool {
			return sameDevice(other, r) && other.workload.node == d.in.node
		})
		if same >= 0 {
			added[same].Count = max(added[same].Count, 1) + 1
			continue
		}
		r.Name = uniqueName(added, r, c.domainOr(placeholderDomain)+"/"+r.Name)
		added = append(added, r)
		c.add(d.at, r, d.in)
	}
}

// sameDevice reports whether two resources differ at most in the number of slots.
func sameDevice(a, b *resource) bool {
	sameContainer := a.Container.Path == b.Container.Path && a.Container.Permissions == b.Container.Permissions
	x := a.Match[0]
	y := b.Match[0]
	return sameContainer && slices.Equal(x.Glob, y.Glob) && x.CDIDevice == y.CDIDevice
}

// uniqueName is a name that no other resource has, except for the same device of other
// nodes. r may be nil.
func uniqueName(others []*resource, r *resource, name string) string {
	for n := 1; ; n++ {
		candidate := name
		if n > 1 {
			candidate = fmt.Sprintf("%s-%d", name, n)
		}
		isTaken := func(other *resource) bool {
			return other.Name == candidate && (r == nil || !sameDevice(other, r))
		}
		if !slices.ContainsFunc(others, isTaken) {
			return candidate
		}
	}
}

// hostResource makes the resource of a device, nil if it cannot be imported.
func (c *conversion) hostResource(d hostDevice) *resource {
	host := d.host
	r := &resource{mayShare: true}
	switch {
	case strings.Contains(host, "$"), strings.Contains(host, "{{"):
		d.at.differs("not imported: %q has a variable: write its value", d.host)
		return nil
	case isCDIName(host):
		r.Match = []match{{CDIDevice: host}}
		r.Name = resourceName(host[strings.Index(host, "/")+1:])
		r.differs(d.at, "differs: CDI devices of other specs need --allow=cdi:%s", host[:strings.Index(host, "=")])
		return r
	case host == "/dev":
		d.at.differs("not imported: all of /dev, as a privileged container has it: name the devices that %s opens", d.user)
		return nil
	case !strings.HasPrefix(host, "/"):
		d.at.differs("not imported: %q is neither a path nor the name of a CDI device", host)
		return nil
	case !strings.HasPrefix(host, "/dev/") || hasNoNodes(host):
		return nil // a directory of files
	case !isPath(host), d.container != "" && !isPath(d.container):
		d.at.differs("not imported: %q at %q: paths must be absolute and clean", host, d.container)
		return nil
	}
	if d.hasVariable {
		r.differs(d.at, "differs: imported %q, the default of the variable", host)
	}
	r.selectHostPath(host, d.container, d)
	return r
}

// isPath reports whether a text is an absolute, clean path of printable characters, which the
// configuration accepts.
func isPath(text string) bool {
	isClean := path.IsAbs(text) && path.Clean(text) == text && text != "/"
	return isClean && isPrintable(text) && len(text) <= maxText
}

// onlyPermissions are the permissions in a text, each once and in the order of ours.
func onlyPermissions(text string) (permissions string) {
	for _, p := range "rwm" {
		if strings.ContainsRune(text, p) {
			permissions += string(p)
		}
	}
	return permissions
}

// selectHostPath selects the nodes of a path of the host.
func (r *resource) selectHostPath(host, container string, d hostDevice) {
	r.Name = resourceName(strings.TrimPrefix(host, "/dev/"))
	if r.Name == "" {
		r.Name = "device"
	}
	m := match{Glob: []string{pattern.Quote(host)}}
	if isDirectory(host) {
		r.Each = "all"
		m.Glob = []string{pattern.Quote(host) + "/**"}
		if container != "" && container != host {
			r.Container.Path = escapeVariables(container) + "/"
		}
		if hasLinks(host) {
			r.differs(d.at, "differs: the container has the nodes at the kernel's names, and not the links in %q: write a resource for each link that %s opens", host, d.user)
		}
		r.Match = []match{m}
		r.leaveOutDangerousUSB(d.at, squatPath{host: host, directory: true})
	} else {
		if container == "" {
			container = host
		}
		r.Container.Path = escapeVariables(container)
		r.Match = []match{m}
	}
	permissions := onlyPermissions(d.permissions)
	if permissions != "" && permissions != defaultPermissions {
		r.Container.Permissions = permissions
	}
	if d.optional {
		r.differs(d.at, "differs: %q is optional for %s: a pod that requests it waits for a node that has it", host, d.user)
	}
}
