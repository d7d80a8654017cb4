package fleet

import (
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/status"
)

// prepareFailed: the driver refuses to prepare a claim, or has not registered. The latest event
// counts, because an earlier error may be resolved.
func prepareFailed(e *Evidence) *Reason {
	if !e.isPlaced() || e.Pod.Status.Phase != "Pending" {
		return nil
	}
	latest := e.latest(func(event *Event) bool {
		return event.Reason == "FailedPrepareDynamicResources" || strings.Contains(event.Message, "prepare dynamic resources")
	})
	if latest == nil {
		return nil
	}
	reason := &Reason{
		Text:    "the claim cannot be prepared on " + e.Pod.Spec.NodeName,
		Details: []string{latest.Message},
		Do:      []string{"the kubelet tries again within two minutes; resolve the reason meanwhile"},
	}
	if strings.Contains(latest.Message, "is not registered") {
		reason.Do = []string{"start the DaemonSet's pod on this node, with dra.enabled = true in the chart"}
	}
	return reason
}

// missingDevice are parts of the messages of a runtime that cannot inject a device, because its
// link, its node or its CDI spec does not exist.
var missingDevice = []string{
	"no such file or directory",
	"unresolvable CDI devices",
	"error gathering device information",
}

// createFailed: the runtime cannot create the container, since its device is gone. The first such
// container is explained, with the devices that the pod holds and that are not Healthy.
func createFailed(e *Evidence) *Reason {
	if !e.isPlaced() {
		return nil
	}
	for _, c := range e.containerStatuses() {
		message := c.State.failure()
		isMissing := slices.ContainsFunc(missingDevice, func(part string) bool { return strings.Contains(message, part) })
		if !isMissing {
			continue
		}
		reason := &Reason{
			Text:    "container " + c.Name + " cannot start, since its device is gone",
			Details: []string{message},
			Do: []string{
				"plug the device in again: the container starts with it within minutes",
				"to use another device instead: kubectl delete pod -n " + e.Namespace + " " + e.Name,
			},
		}
		for _, h := range e.held() {
			if h.device.Health != status.Healthy {
				reason.Details = append(reason.Details, h.describe())
			}
		}
		return reason
	}
	return nil
}

// describe says since when and why a device is Unhealthy.
func (h *holding) describe() string {
	return h.resource + " " + h.device.ID + " is Unhealthy" + sinceText(h.since) + ": " + h.device.Reason
}

// failure is why a container could not be created or started, empty if it could. The names of such
// reasons of the kubelet end with "Error", such as CreateContainerError and RunContainerError.
func (s *ContainerState) failure() string {
	if w := s.Waiting; w != nil && strings.HasSuffix(w.Reason, "Error") {
		return w.Reason + ": " + w.Message
	}
	// runc's error, after the container was created.
	if t := s.Terminated; t != nil && t.Reason == "StartError" {
		return t.Reason + ": " + t.Message
	}
	return ""
}

// containerWaits: a container does not run for a reason that no other rule explains.
func containerWaits(e *Evidence) *Reason {
	if !e.isPlaced() || createFailed(e) != nil {
		return nil
	}
	var details []string
	for _, c := range e.containerStatuses() {
		w := c.State.Waiting
		isNormal := w == nil || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing"
		if isNormal {
			continue
		}
		details = append(details, strings.TrimSuffix(c.Name+": "+w.Reason+": "+w.Message, ": "))
	}
	return because("a container does not run", details,
		"this is not about devices: kubectl describe pod -n "+e.Namespace+" "+e.Name)
}
