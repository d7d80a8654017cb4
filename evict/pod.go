package evict

import "cmp"

// Annotation is "true" or "false" on a pod that is, or is not, to be evicted.
const Annotation = "generic-dp.github.io/evict"

// mirrorAnnotation is on the API server's image of a static pod, which can't be evicted.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// podObject is what is read of a pod.
type podObject struct {
	Metadata struct {
		Namespace, Name, UID, ResourceVersion string
		DeletionTimestamp                     string
		Annotations                           map[string]string
	}
	Spec   struct{ NodeName string }
	Status struct{ ContainerStatuses, InitContainerStatuses []containerStatus }
}

type containerStatus struct {
	AllocatedResourcesStatus []struct {
		Name      string
		Resources []struct{ ResourceID, Health, Message string }
	}
}

// unhealthy lists the Unhealthy devices of a pod that may be evicted, and the kubelet's
// message about one of them.
func (o *podObject) unhealthy(optIn bool) (devices []device, message string) {
	m := &o.Metadata
	if _, static := m.Annotations[mirrorAnnotation]; static || m.DeletionTimestamp != "" {
		return nil, ""
	}
	// A value that is neither keeps the pod, too.
	if want, annotated := m.Annotations[Annotation]; want != "true" && (optIn || annotated) {
		return nil, ""
	}
	for _, list := range [][]containerStatus{o.Status.ContainerStatuses, o.Status.InitContainerStatuses} {
		for _, c := range list {
			for _, r := range c.AllocatedResourcesStatus {
				for _, d := range r.Resources {
					if d.Health == "Unhealthy" {
						devices = append(devices, device{o.Spec.NodeName, r.Name, d.ResourceID})
						message = cmp.Or(message, d.Message)
					}
				}
			}
		}
	}
	return devices, message
}
