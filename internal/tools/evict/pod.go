package evict

import (
	"cmp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// Annotation is the key of a pod's annotation. "true" permits evictions with Options.OptIn, and any
// other value forbids them.
const Annotation = "generic-dp.github.io/evict"

// mirrorAnnotation is on the mirror pod of a static pod, which the API server shows but cannot
// evict (ConfigMirrorAnnotationKey in k8s.io/api/core/v1).
const mirrorAnnotation = "kubernetes.io/config.mirror"

// initialEventsEnd is the annotation of the bookmark that ends the list at the beginning of a watch
// (InitialEventsAnnotationKey in k8s.io/apimachinery/pkg/apis/meta/v1).
const initialEventsEnd = "k8s.io/initial-events-end"

// podObject has the fields of a pod that are needed. A bookmark of a watch is also read as one: it
// only has metadata.
type podObject struct {
	namespace, name, uid, version string
	node                          string
	isTerminating                 bool
	// isStatic is set if the object is the mirror pod of a static pod.
	isStatic bool
	// isListEnd is set if the object is the bookmark at the end of a list.
	isListEnd bool
	// evict is the value of Annotation; nil if the object does not have it.
	evict *string

	// unhealthy are the first Unhealthy devices by resource and ID, at most maxDevices;
	// total is the number of all.
	unhealthy []device
	total     int
	message   string // the first message of the kubelet about one of them, or empty
}

// read reads the object from a stream. Everything else in the pod is skipped, so that its size does
// not matter. Nobody holds evicter.mu, because reading waits for the network.
func (o *podObject) read(d *kubeapi.Decoder) error {
	err := d.Fields(func(name string) error {
		switch name {
		case "metadata":
			return o.readMetadata(d)
		case "spec":
			return d.Fields(func(name string) error {
				if name == "nodeName" {
					return d.Value(&o.node)
				}
				return d.Skip()
			})
		case "status":
			return o.readStatus(d)
		}
		return d.Skip()
	})
	// The node is only known after the whole object, because its fields may be in any order.
	for i := range o.unhealthy {
		o.unhealthy[i].node = o.node
	}
	return err
}

// readMetadata reads the identity of an object, its annotations, and whether it is terminating.
func (o *podObject) readMetadata(d *kubeapi.Decoder) error {
	return d.Fields(func(name string) error {
		switch name {
		case "namespace":
			return d.Value(&o.namespace)
		case "name":
			return d.Value(&o.name)
		case "uid":
			return d.Value(&o.uid)
		case "resourceVersion":
			return d.Value(&o.version)
		case "deletionTimestamp":
			// null is valid JSON for a time that is not set.
			var at *string
			err := d.Value(&at)
			o.isTerminating = at != nil
			return err
		case "annotations":
			return o.readAnnotations(d)
		}
		return d.Skip()
	})
}

// readAnnotations reads the known annotations. All other keys and values are skipped.
func (o *podObject) readAnnotations(d *kubeapi.Decoder) error {
	return d.Fields(func(name string) error {
		switch name {
		case Annotation:
			return d.Value(&o.evict)
		// Only the presence of these annotations matters. Their values are skipped below.
		case mirrorAnnotation:
			o.isStatic = true
		case initialEventsEnd:
			o.isListEnd = true
		}
		return d.Skip()
	})
}

// readStatus reads the devices of all containers. Ephemeral containers cannot request devices.
func (o *podObject) readStatus(d *kubeapi.Decoder) error {
	return d.Fields(func(name string) error {
		isContainers := name == "containerStatuses" || name == "initContainerStatuses"
		if !isContainers {
			return d.Skip()
		}
		return d.Elements(func() error {
			return d.Fields(func(name string) error {
				if name != "allocatedResourcesStatus" {
					return d.Skip()
				}
				return d.Elements(func() error {
					return o.readResource(d)
				})
			})
		})
	})
}

// readResource reads the health of the devices of one resource of a container.
func (o *podObject) readResource(d *kubeapi.Decoder) error {
	resource := ""
	return d.Fields(func(name string) error {
		switch name {
		case "name":
			return d.Value(&resource)
		case "resources":
			return d.Elements(func() error {
				var status struct{ ResourceID, Health, Message string }
				err := d.Value(&status)
				// "Unknown" is no reason to evict: a driver that does not report is not a broken
				// device.
				if err == nil && status.Health == "Unhealthy" {
					o.add(device{resource: resource, id: status.ResourceID})
					o.message = cmp.Or(o.message, status.Message)
				}
				return err
			})
		}
		return d.Skip()
	})
}

// add adds an Unhealthy device. Of too many it keeps the first ones in order, since the kubelet
// lists them in any order: the same devices must stay, or their times would start again.
func (o *podObject) add(d device) {
	i, isKnown := slices.BinarySearchFunc(o.unhealthy, d, compareDevices)
	if isKnown { // containers share it
		return
	}
	o.total++
	// It comes after all that are kept.
	if i == maxDevices {
		return
	}
	if len(o.unhealthy) == maxDevices {
		o.unhealthy = o.unhealthy[:maxDevices-1]
	}
	o.unhealthy = slices.Insert(o.unhealthy, i, d)
}

// compareDevices orders the devices of one pod by resource and ID. They all have the same node.
func compareDevices(a, b device) int {
	if order := strings.Compare(a.resource, b.resource); order != 0 {
		return order
	}
	return strings.Compare(a.id, b.id)
}

// mayBeEvicted reports whether the pod may be evicted, whatever its devices.
func (o *podObject) mayBeEvicted(optIn bool) bool {
	if o.isStatic || o.isTerminating {
		return false
	}
	if o.evict == nil {
		return !optIn
	}
	return *o.evict == "true" // any other value keeps the pod
}
