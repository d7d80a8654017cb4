package cdi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Claim is a prepared resource claim: who holds which devices, and the container edits that
// depend on several devices together. It is one spec file, from preparation to
// unpreparation.
type Claim struct {
	Namespace, Name, UID string
	// PodClaim is what the pod calls a claim that was made from a template.
	PodClaim string
	Requests []Request
}

// Request is a request of a claim. A container gets one of them or all.
type Request struct {
	Name string
	// Devices are "RESOURCE=ID", sorted, with repeats for several slots.
	Devices []string
	Mounts  []device.Mount
	Env     map[string]string // not read again
}

const (
	// claimKind and the UID are the kind of a claim's spec.
	claimKind = "generic-dp.github.io/claim-"
	// Annotations of a claim's spec, which only this program reads.
	namespaceKey = "generic-dp.github.io/namespace"
	nameKey      = "generic-dp.github.io/name"
	podClaimKey  = "generic-dp.github.io/pod-claim"
	devicesKey   = "generic-dp.github.io/devices"
)

// Devices are those of all requests.
func (c Claim) Devices() (all []string) {
	for _, r := range c.Requests {
		all = append(all, r.Devices...)
	}
	return all
}

// CDIName is the qualified name that gives a container the edits of a request. The spec
// format has no slash for a subrequest, and a DNS label no dot.
func (c Claim) CDIName(r Request) string {
	return claimKind + c.UID + "=" + strings.ReplaceAll(r.Name, "/", ".")
}

// WriteClaim writes the file of a claim. Each request has some edits, without which
// runtimes reject it.
func (w *Writer) WriteClaim(c Claim) error {
	if !validUID(c.UID) {
		return fmt.Errorf("UID %q: want letters, digits and dashes", c.UID)
	}
	spec := &Spec{Kind: claimKind + c.UID, Annotations: map[string]string{namespaceKey: c.Namespace, nameKey: c.Name}}
	if c.PodClaim != "" {
		spec.Annotations[podClaimKey] = c.PodClaim
	}
	for _, r := range c.Requests {
		spec.Devices = append(spec.Devices, specs.Device{
			Name:           strings.ReplaceAll(r.Name, "/", "."),
			Annotations:    map[string]string{devicesKey: strings.Join(r.Devices, ",")},
			ContainerEdits: Edits{Env: environ(r.Env), Mounts: bindMounts(r.Mounts)},
		})
	}
	spec.Version, _ = specs.MinimumRequiredVersion(spec) // never fails
	return w.write(w.FileName(spec.Kind), spec)
}

// Claims reads all claims, in the order of their UIDs. A file that can't be read does not
// say who holds what: an error, which leaves out that claim.
func (w *Writer) Claims() (claims []Claim, err error) {
	names, err := w.names()
	errs := []error{err}
	for _, name := range names {
		if !w.isClaim(name) {
			continue
		}
		spec := w.read(name)
		if spec == nil {
			if _, err := os.Lstat(filepath.Join(w.Dir, name)); err == nil { // or a temporary file of a crash
				errs = append(errs, fmt.Errorf("--cdi-dir: %s is no spec of a claim", name))
			}
			continue
		}
		c := Claim{UID: strings.TrimPrefix(spec.Kind, claimKind), Namespace: spec.Annotations[namespaceKey], Name: spec.Annotations[nameKey], PodClaim: spec.Annotations[podClaimKey]}
		for _, d := range spec.Devices {
			r := Request{Name: strings.ReplaceAll(d.Name, ".", "/"), Devices: strings.Split(d.Annotations[devicesKey], ",")}
			for _, m := range d.ContainerEdits.Mounts {
				r.Mounts = append(r.Mounts, device.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, ReadOnly: slices.Contains(m.Options, "ro")})
			}
			c.Requests = append(c.Requests, r)
		}
		claims = append(claims, c)
	}
	return claims, errors.Join(errs...)
}

// RemoveClaim removes the file of a claim. A missing one is no error.
func (w *Writer) RemoveClaim(uid string) error {
	if !validUID(uid) {
		return nil
	}
	return w.remove(w.FileName(claimKind + uid))
}

// isClaim reports whether a file of the installation is that of a claim.
func (w *Writer) isClaim(name string) bool {
	return strings.HasPrefix(name, strings.TrimSuffix(w.FileName(claimKind), fileSuffix))
}

// validUID reports whether a UID of an object can be part of a kind and of a file's name.
func validUID(uid string) bool {
	return uid != "" && len(uid) <= 64 && !strings.ContainsFunc(uid, func(c rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-", c)
	})
}
