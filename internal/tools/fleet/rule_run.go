package fleet

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/answer"
)

// deviceLost: the pod runs, but its device is not Healthy any more. A container that does not start
// because of the lost device is the subject of createFailed.
func deviceLost(e *Evidence) *Reason {
	if !e.isPlaced() || createFailed(e) != nil {
		return nil
	}
	var details []string
	for _, h := range e.held() {
		if h.device.Health != status.Healthy {
			details = append(details, h.describe())
		}
	}
	if len(details) == 0 {
		return nil
	}
	return &Reason{
		Text:    "the pod has lost its device",
		Details: details,
		Do: []string{
			"plug it in again, then restart the container: it keeps the node that it started with until then",
			"container.health_dir restarts a container without further action, and generic-dp-evict moves its pod: see docs/pods.md",
		},
	}
}

// withoutDevice: the pod runs on a node whose kubelet has not given it the device. Kubelets start a
// static pod without the device if its resource is not registered yet. It needs the answer of the
// node, with its holders.
func withoutDevice(e *Evidence) *Reason {
	if !e.isPlaced() || e.Pod.Status.Phase != "Running" || len(e.Answers) == 0 {
		return nil
	}
	held := e.held()
	for _, r := range e.Requests {
		if r.Class != "" {
			continue // the driver knows the holders of claims by other means
		}
		places := e.places(r.Resource)
		isKnown := len(places) > 0 && places[0].answer != nil && places[0].answer.HeldUnknown == ""
		has := slices.ContainsFunc(held, func(h holding) bool { return h.resource == r.Resource })
		if !isKnown || has {
			continue
		}
		return &Reason{
			Text: "the pod runs without " + r.Resource + ": the kubelet has not given it a device",
			Do: []string{
				"delete the pod, so that it starts again",
				`for a static pod, register = "always" in the configuration: the kubelet starts it without the device otherwise`,
			},
		}
	}
	return nil
}

// permissionDenied: the user of a container may not open its device. It needs the identity of the
// container, and does not apply to root, whose capabilities are not known.
func permissionDenied(e *Evidence) *Reason {
	if !e.isPlaced() {
		return nil
	}
	for _, h := range e.held() {
		id, isKnown := e.identity(h.holder.Container)
		if !isKnown || id.UID == 0 {
			continue
		}
		for _, p := range e.Permissions {
			isOther := p.Resource != h.resource || p.ID != h.device.ID
			if isOther || id.mayOpen(&p) {
				continue
			}
			return &Reason{
				Text: fmt.Sprintf("container %s runs as user %d and may not open %s", h.holder.Container, id.UID, p.Path),
				Details: []string{
					fmt.Sprintf("%s on %s has owner %d, group %d and mode %04o", p.Path, e.Pod.Spec.NodeName, p.UID, p.GID, p.Mode),
					fmt.Sprintf("the container has user %d, group %d and the groups %v", id.UID, id.GID, id.SupplementalGroups),
				},
				Do: []string{
					remedy(&p),
					"nothing, if the runtime sets device_ownership_from_security_context: the node belongs to runAsUser then",
				},
			}
		}
	}
	return nil
}

// identity is the user of a container: as the runtime reports it, or else as the pod sets it. The
// user of an image is only known from the runtime. container is the name of a container or an init
// container.
func (e *Evidence) identity(container string) (id Identity, isKnown bool) {
	for _, c := range e.containerStatuses() {
		if c.Name == container && c.User.Linux != nil {
			return *c.User.Linux, true
		}
	}
	pod := e.Pod.Spec.SecurityContext
	for _, c := range slices.Concat(e.Pod.Spec.InitContainers, e.Pod.Spec.Containers) {
		// The settings of a container precede the settings of its pod.
		user := cmp.Or(c.SecurityContext.RunAsUser, pod.RunAsUser)
		if c.Name != container || user == nil {
			continue
		}
		id = Identity{
			UID:                *user,
			SupplementalGroups: slices.Clone(pod.SupplementalGroups),
		}
		if group := cmp.Or(c.SecurityContext.RunAsGroup, pod.RunAsGroup); group != nil {
			id.GID = *group
		}
		if pod.FSGroup != nil {
			id.SupplementalGroups = append(id.SupplementalGroups, *pod.FSGroup)
		}
		return id, true
	}
	return id, false
}

// remedy says what to change, so that a user may open a node. If the group of the node may use it,
// the pod only needs this group.
func remedy(p *answer.Node) string {
	const groupMayUse = readWrite << 3
	if p.GID != 0 && p.Mode&groupMayUse == groupMayUse {
		return fmt.Sprintf("set securityContext: {supplementalGroups: [%d]} in the pod", p.GID)
	}
	return "set container.owner in the configuration, which needs CDI, or change the group of the node with a udev rule"
}

// readWrite are the bits of a mode that reading and writing need.
const readWrite = 0o6

// mayOpen reports whether a user may read and write a node, by its mode. The kernel takes the first
// of owner, group and others that fits (inode_permission in fs/namei.c). Thus an owner without a
// permission is denied even if others have it.
func (id *Identity) mayOpen(p *answer.Node) bool {
	bits := p.Mode
	isGroup := id.GID == int64(p.GID) || slices.Contains(id.SupplementalGroups, int64(p.GID))
	switch {
	case id.UID == int64(p.UID):
		bits >>= 6
	case isGroup:
		bits >>= 3
	}
	return bits&readWrite == readWrite
}
