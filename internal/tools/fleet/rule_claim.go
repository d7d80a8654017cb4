package fleet

import (
	"cmp"
	"slices"
	"strings"
)

// class is the DeviceClass of a request of a claim. It is empty for a request with alternatives.
func (r *ClaimRequest) class() string { return cmp.Or(r.Exactly.DeviceClassName, r.DeviceClassName) }

// classResource returns the resource of a DeviceClass: the extended resource that it stands for, or
// what its name says. `generic-dp classes` makes the class zigbee.example.com of the resource
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

// classMissing: a claim names a DeviceClass that does not exist.
func classMissing(e *Evidence) *Reason {
	if !e.isWaiting() || !e.ClassesKnown {
		return nil
	}
	for _, r := range e.Requests {
		exists := slices.ContainsFunc(e.Classes, func(c Class) bool { return c.Metadata.Name == r.Class })
		if r.Class == "" || exists {
			continue
		}
		return &Reason{
			Text: "the claim names the DeviceClass " + r.Class + ", which does not exist",
			Do:   []string{"generic-dp classes --config FILE prints the classes of a configuration, for kubectl apply"},
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

// claimPending: the scheduler has not allocated a claim. It names the requests, while the rules
// about devices say why none fits.
func claimPending(e *Evidence) *Reason {
	if !e.isWaiting() {
		return nil
	}
	var details []string
	for _, c := range e.Claims {
		if c.Status.Allocation != nil {
			continue
		}
		for _, r := range c.Spec.Devices.Requests {
			details = append(details, "request "+r.Name+" of "+c.Metadata.Name+": a device of class "+r.class())
		}
	}
	if len(details) == 0 {
		return nil
	}
	return &Reason{
		Text:    "no device is allocated to a claim of the pod",
		Details: few(details),
		Do:      []string{"the other reasons say why; without another reason, compare the selectors of the claim with kubectl get resourceslices -o yaml"},
	}
}
