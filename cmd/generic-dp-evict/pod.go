package main

import (
	"cmp"
	"slices"
	"strings"
)

// annotation is the key of a pod's annotation. "true" permits evictions with options.OptIn, and any
// other value forbids them.
const annotation = "generic-dp.github.io/evict"

// mirrorAnnotation is on the mirror pod of a static pod, which the API server shows but cannot
// evict (ConfigMirrorAnnotationKey in k8s.io/api/core/v1).
const mirrorAnnotation = "kubernetes.io/config.mirror"

// initialEventsEnd is the annotation of the bookmark that ends the list at the beginning of a watch
// (InitialEventsAnnotationKey in k8s.io/apimachinery/pkg/apis/meta/v1).
const initialEventsEnd = "k8s.io/initial-events-end"

// podObject has the fields of a pod that are needed. A bookmark of a watch is also read as one: it
// only has metadata. encoding/json matches names whatever their case.
type podObject struct {
	Metadata struct {
		Namespace         string
		Name              string
		UID               string
		DeletionTimestamp *string
		Annotations       map[string]string
	}
	Spec   struct{ NodeName string }
	Status struct {
		InitContainerStatuses []containerStatus
		ContainerStatuses     []containerStatus
	}
}

// containerStatus has the health of the devices of a container.
type containerStatus struct {
	AllocatedResourcesStatus []struct {
		Name      string
		Resources []struct{ ResourceID, Health, Message string }
	}
}

// unhealthy lists the Unhealthy devices of all containers by resource and ID, with the first message
// of the kubelet about one of them. Ephemeral containers cannot request devices. "Unknown" is no
// reason to evict: a driver that does not report is not a broken device.
func (o *podObject) unhealthy() (devices []device, message string) {
	for _, c := range slices.Concat(o.Status.InitContainerStatuses, o.Status.ContainerStatuses) {
		for _, resource := range c.AllocatedResourcesStatus {
			for _, d := range resource.Resources {
				if d.Health != "Unhealthy" {
					continue
				}
				message = cmp.Or(message, d.Message)
				devices = append(devices, device{
					node:     o.Spec.NodeName,
					resource: resource.Name,
					id:       d.ResourceID,
				})
			}
		}
	}
	slices.SortFunc(devices, compareDevices)
	// Containers may share a device.
	return slices.Compact(devices), message
}

// compareDevices orders the devices of one pod by resource and ID. They all have the same node.
func compareDevices(a, b device) int {
	return cmp.Or(strings.Compare(a.resource, b.resource), strings.Compare(a.id, b.id))
}

// mayBeEvicted reports whether the pod may be evicted, whatever its devices.
func (o *podObject) mayBeEvicted(optIn bool) bool {
	_, isStatic := o.Metadata.Annotations[mirrorAnnotation]
	if isStatic || o.Metadata.DeletionTimestamp != nil {
		return false
	}
	value, isSet := o.Metadata.Annotations[annotation]
	if !isSet {
		return !optIn
	}
	return value == "true" // any other value keeps the pod
}
