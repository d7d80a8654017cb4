package fleet

import (
	"cmp"
	"slices"
	"strings"
)

// class is the DeviceClass of a request of a claim. It is empty for a request with alternatives.
func (r *ClaimRequest) class() string { return cmp.Or(r.Exactly.DeviceClassName, r.DeviceClassName) }

// classResource returns the resource of a DeviceClass: the extended resource that it stands for, or
// what its name says. `kubectl generic-dp classes` makes the class zigbee.example.com of the resource
// example.com/zigbee.
func (e *Evidence) classResource(class string) string {
	for _, c := range e.Classes {
		if c.Metadata.Name == class && c.Spec.ExtendedResourceName != "" {
			return c.Spec.ExtendedResourceName
		}
	}
	// A name that is not a DNS label has a hash there, and is not found.
	name, domain, _ := strings.Cut(class, ".")
	return domain + "/" + name
}

// addClaims adds the resources that the pod requests by claims. Each request counts as one device.
func (e *Evidence) addClaims() {
	for _, claim := range e.Claims {
		for _, r := range claim.Spec.Devices.Requests {
			if r.class() == "" {
				continue
			}
			e.Requests = append(e.Requests, Request{
				Resource: e.classResource(r.class()),
				Count:    1,
				Class:    r.class(),
			})
		}
	}
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

// classMissing: a claim names a DeviceClass that does not exist, or no class has the extended
// resource that nodes offer by DRA.
func classMissing(e *Evidence) *Reason {
	if !e.isWaiting() || !e.ClassesKnown {
		return nil
	}
	for _, r := range e.Requests {
		if r.Class == "" && e.isOnlyByDRA(r.Resource) && !e.hasClassOf(r.Resource) {
			return &Reason{
				Text: "nodes offer " + r.Resource + " by DRA, and no DeviceClass has it as extendedResourceName",
				Do: []string{
					"generic-dp classes --config FILE prints the classes of a configuration, for kubectl apply; dra.resources in the chart's values creates them",
				},
			}
		}
		exists := slices.ContainsFunc(e.Classes, func(c Class) bool { return c.Metadata.Name == r.Class })
		if r.Class == "" || exists {
			continue
		}
		return &Reason{
			Text: "the claim names the DeviceClass " + r.Class + ", which does not exist",
			Do:   []string{"kubectl generic-dp classes FILE prints the classes of a configuration, for kubectl apply"},
		}
	}
	return nil
}

// isOnlyByDRA reports whether nodes have answered that they offer a resource by DRA, and no node by a
// device plugin.
func (e *Evidence) isOnlyByDRA(resource string) bool {
	isByDRA := false
	for _, p := range e.places(resource) {
		isByPlugin := len(p.resource.Devices) > 0 && p.resource.API != "dra"
		if p.allocatable > 0 || isByPlugin {
			return false
		}
		isByDRA = isByDRA || len(p.resource.Devices) > 0
	}
	return isByDRA
}

// hasClassOf reports whether a DeviceClass stands for an extended resource. A pod may also name any
// class by a resource with this prefix (ResourceDeviceClassPrefix in k8s.io/api/resource/v1).
func (e *Evidence) hasClassOf(resource string) bool {
	const prefix = "deviceclass.resource.kubernetes.io/"
	return slices.ContainsFunc(e.Classes, func(c Class) bool {
		return c.Spec.ExtendedResourceName == resource || prefix+c.Metadata.Name == resource
	})
}

// claimUnused: no container uses a claim of the pod, so that no container gets its devices.
func claimUnused(e *Evidence) *Reason {
	if e.Pod == nil {
		return nil
	}
	used := map[string]bool{}
	for _, c := range slices.Concat(e.Pod.Spec.InitContainers, e.Pod.Spec.Containers) {
		for _, claim := range c.Resources.Claims {
			used[claim.Name] = true
		}
	}
	for _, c := range e.Pod.Spec.ResourceClaims {
		if !used[c.Name] {
			return &Reason{
				Text: "no container uses the claim " + c.Name + " of the pod, so that none gets its device",
				Do:   []string{"add resources: {claims: [{name: " + c.Name + "}]} to the container"},
			}
		}
	}
	return nil
}

// claimMissing: a claim of the pod does not exist. It shows the event of the controller that could
// not make the claim, if there is one.
func claimMissing(e *Evidence) *Reason {
	if !e.isWaiting() {
		return nil
	}
	for _, c := range e.Pod.Spec.ResourceClaims {
		name := e.Pod.claimName(c)
		exists := slices.ContainsFunc(e.Claims, func(claim Claim) bool { return claim.Metadata.Name == name })
		if exists {
			continue
		}
		reason := &Reason{
			Text: "the ResourceClaim " + cmp.Or(name, "of the template "+c.ResourceClaimTemplateName) + " does not exist",
			Do:   []string{"create it in namespace " + e.Namespace + ", or correct spec.resourceClaims of the pod"},
		}
		for i := range e.Events {
			if e.Events[i].Reason == "FailedResourceClaimCreation" {
				reason.Details = []string{e.Events[i].Message}
			}
		}
		return reason
	}
	return nil
}
