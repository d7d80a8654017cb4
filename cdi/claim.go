package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Claim is a prepared resource claim: its holders, its devices, and the container edits that
// depend on several devices together. It is stored as one spec file, from preparation to
// unpreparation.
type Claim struct {
	// Namespace, Name and UID identify the ResourceClaim.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// PodClaim is the name in the pod of a claim that was made from a template.
	PodClaim string `json:"pod_claim,omitempty"`
	// Pods are the UIDs of the pods that may use the claim. IsOwned is set if it was made for one pod,
	// so that no other pod joins it.
	Pods     []string  `json:"pods,omitempty"`
	IsOwned  bool      `json:"is_owned,omitempty"`
	Requests []Request `json:"requests"`
}

// Request is a request of a claim. A container refers to one request or to the whole claim.
type Request struct {
	// Name is the name of the request, or of its subrequest "REQUEST/SUBREQUEST".
	Name string `json:"name"`
	// Devices are the devices of the request, with repeats for several slots.
	Devices []device.Ref `json:"devices,omitempty"`
	// Shares are the parts that the request has of devices that other claims share.
	Shares []Share `json:"shares,omitempty"`
	// Mounts and Env are the container edits.
	Mounts []device.Mount    `json:"mounts,omitempty"`
	Env    map[string]string `json:"env,omitempty"`
}

// Share is the part that a claim has of a capacity of a device. Quantities are written as in the
// API.
type Share struct {
	Device   device.Ref `json:"device"`
	Capacity string     `json:"capacity"`
	Amount   string     `json:"amount"`
}

const (
	// claimKind, followed by the UID, is the kind of a claim's spec.
	claimKind = device.OwnDomain + "/claim-"
	// claimKey is the annotation with the claim as JSON, which only this program reads.
	claimKey = "generic-dp.github.io/claim"
)

// Devices are the devices of all requests, with repeats for several slots.
func (c Claim) Devices() []device.Ref {
	var all []device.Ref
	for _, r := range c.Requests {
		all = append(all, r.Devices...)
	}
	return all
}

// CDIName is the qualified name that gives a container the edits of a request. A subrequest has
// a slash in its name, which the spec format does not allow. A dot replaces it: the names are
// DNS labels, which have no dot.
func (c Claim) CDIName(r Request) string {
	return claimKind + c.UID + "=" + entryName(r)
}

// entryName is the name of a request in the spec of its claim.
func entryName(r Request) string {
	return strings.ReplaceAll(r.Name, "/", ".")
}

// WriteClaim writes the file of a claim. Each request must have edits: runtimes reject a spec
// with an entry that has none.
func (w *Writer) WriteClaim(c Claim) error {
	if !validUID(c.UID) {
		return fmt.Errorf("UID %q: want letters, digits and dashes", c.UID)
	}
	record, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("--cdi-dir: %w", err)
	}
	spec := &Spec{
		Kind:        claimKind + c.UID,
		Annotations: map[string]string{claimKey: string(record)},
	}
	for _, r := range c.Requests {
		spec.Devices = append(spec.Devices, specs.Device{
			Name: entryName(r),
			ContainerEdits: Edits{
				Env:    environ(r.Env),
				Mounts: bindMounts(r.Mounts),
			},
		})
	}
	spec.Version, _ = specs.MinimumRequiredVersion(spec) // never fails
	return w.write(w.FileName(spec.Kind), spec)
}

// claimError is why the file of a claim could not be read.
func (w *Writer) claimError(name string) error {
	_, err := os.Lstat(w.path(name))
	if err != nil {
		return fmt.Errorf("--cdi-dir: %w", err)
	}
	return fmt.Errorf("--cdi-dir: %s is not the spec of a claim: when no container uses the devices of the claim, remove it, and start the program again", name)
}

// Claims reads all claims, in the order of their UIDs. It leaves out claims whose file cannot be
// read, and returns an error for each: such a file does not say which devices are held.
func (w *Writer) Claims() ([]Claim, error) {
	names, err := w.names()
	errs := []error{err}
	var claims []Claim
	for _, name := range names {
		if !w.isClaim(name) {
			continue
		}
		uid := strings.TrimPrefix(name, w.claimPrefix())
		claim, err := w.ReadClaim(strings.TrimSuffix(uid, fileSuffix))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		claims = append(claims, claim)
	}
	return claims, errors.Join(errs...)
}

// ReadClaim reads the file of a claim. The error is fs.ErrNotExist if there is none.
func (w *Writer) ReadClaim(uid string) (Claim, error) {
	name := w.FileName(claimKind + uid)
	spec := w.read(name)
	if spec == nil {
		return Claim{}, w.claimError(name)
	}
	var claim Claim
	err := json.Unmarshal([]byte(spec.Annotations[claimKey]), &claim)
	isWhole := err == nil && claim.UID == uid && len(claim.Requests) == len(spec.Devices)
	if !isWhole {
		return Claim{}, w.claimError(name)
	}
	return claim, nil
}

// ClaimPath is the path of the file of a claim.
func (w *Writer) ClaimPath(uid string) string {
	return w.path(w.FileName(claimKind + uid))
}

// RemoveClaim removes the file of a claim. It is no error if the file is missing.
func (w *Writer) RemoveClaim(uid string) error {
	if !validUID(uid) {
		return nil
	}
	return w.remove(w.FileName(claimKind + uid))
}

// isClaim reports whether a file of the installation belongs to a claim.
func (w *Writer) isClaim(name string) bool {
	return strings.HasPrefix(name, w.claimPrefix())
}

// claimPrefix begins the names of all files of claims. The UID of the claim follows.
func (w *Writer) claimPrefix() string {
	name := w.FileName(claimKind)
	return strings.TrimSuffix(name, fileSuffix)
}

// validUID reports whether the UID of a claim can be part of a kind and of a file name.
func validUID(uid string) bool {
	const maxLen = 64
	return len(uid) <= maxLen && device.IsUID(uid)
}
