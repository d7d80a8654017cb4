package plugin

import (
	"cmp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/order"
)

// request is a number of devices that a pod requests.
type request struct {
	resource string
	// count is the sum over all containers. For a claim it is 1.
	count int
	// isClaim is set for a request of a claim.
	isClaim bool
}

// isExtended reports whether a name is the name of an extended resource. Names without a domain and
// names in the domain kubernetes.io belong to Kubernetes.
func isExtended(name string) bool {
	domain, _, hasDomain := strings.Cut(name, "/")
	isNative := domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
	return hasDomain && !isNative
}

// requests lists the extended resources of a pod's containers, by name. For extended resources,
// requests equal limits. The kubelet reuses the devices of init containers, so the sum is an upper
// bound.
func (p *Pod) requests() []request {
	var all []request
	for _, c := range p.containers() {
		for name, text := range c.Resources.Limits {
			if !isExtended(name) {
				continue
			}
			i := slices.IndexFunc(all, func(r request) bool { return r.resource == name })
			if i < 0 {
				all = append(all, request{resource: name})
				i = len(all) - 1
			}
			all[i].count += quantity(text)
		}
	}
	order.Sort(all, func(a, b request) int { return strings.Compare(a.resource, b.resource) })
	return all
}

// claimName is the name of the object of a claim of the pod, empty if it does not exist yet: the
// controller makes it from a template.
func (p *Pod) claimName(c PodClaim) string {
	for _, s := range p.Status.ResourceClaimStatuses {
		if s.Name == c.Name {
			return s.ResourceClaimName
		}
	}
	return c.ResourceClaimName
}

// class is the DeviceClass of a request of a claim. It is empty for a request with alternatives.
func (r *ClaimRequest) class() string { return cmp.Or(r.Exactly.DeviceClassName, r.DeviceClassName) }

// classResource returns the resource of a DeviceClass: the extended resource that it stands for, or
// what its name says. `kubectl generic-dp classes` makes the class zigbee.example.com of the resource
// example.com/zigbee.
func (e *evidence) classResource(class string) string {
	for _, c := range e.classes {
		if c.Metadata.Name == class && c.Spec.ExtendedResourceName != "" {
			return c.Spec.ExtendedResourceName
		}
	}
	// A name that is not a DNS label has a hash there, and is not found.
	name, domain, _ := strings.Cut(class, ".")
	return domain + "/" + name
}

// hasClassOf reports whether a DeviceClass stands for an extended resource. A pod may also name any
// class by a resource with this prefix (ResourceDeviceClassPrefix in k8s.io/api/resource/v1).
func (e *evidence) hasClassOf(resource string) bool {
	const prefix = "deviceclass.resource.kubernetes.io/"
	return slices.ContainsFunc(e.classes, func(c Class) bool {
		return c.Spec.ExtendedResourceName == resource || prefix+c.Metadata.Name == resource
	})
}
