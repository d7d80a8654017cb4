package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/sys/dirents"
)

// Claim is a prepared resource claim: who holds which devices, and the container edits that
// depend on several devices together. It is one spec file, from preparation to
// unpreparation.
type Claim struct {
	Namespace, Name, UID string
	// PodClaim is what the pod calls a claim that was made from a template.
	PodClaim string
	// Pods are the UIDs of the pods that the claim was reserved for when it was prepared.
	Pods     []string
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
	podsKey      = "generic-dp.github.io/pods"
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
	spec := &Spec{
		Kind:        claimKind + c.UID,
		Annotations: map[string]string{namespaceKey: c.Namespace, nameKey: c.Name},
	}
	if c.PodClaim != "" {
		spec.Annotations[podClaimKey] = c.PodClaim
	}
	if len(c.Pods) > 0 {
		spec.Annotations[podsKey] = strings.Join(c.Pods, ",")
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

// Claims reads all claims, in the order of their UIDs. It leaves out claims whose file can't
// be read, and returns an error for each: such a file does not say which devices are held.
func (w *Writer) Claims() (claims []Claim, err error) {
	files, err := w.ClaimFiles()
	errs := []error{err}
	for _, uid := range slices.Sorted(maps.Keys(files)) {
		claim, err := w.ReadClaim(uid)
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

// ClaimFiles lists the files of claims by the UID of the claim, with their inodes: a file that
// is replaced has another inode.
func (w *Writer) ClaimFiles() (map[string]uint64, error) {
	files := map[string]uint64{}
	prefix := strings.TrimSuffix(w.FileName(claimKind), fileSuffix)
	err := dirents.Read(w.Dir, func(e dirents.Entry) {
		if !isOf(w.Owner, e.Name) {
			return // such as a temporary file
		}
		uid, isClaim := strings.CutPrefix(strings.TrimSuffix(e.Name, fileSuffix), prefix)
		if isClaim {
			files[uid] = e.Ino
		}
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return files, fmt.Errorf("--cdi-dir: %w", err)
	}
	return files, nil
}

// ReadClaim reads the file of a claim. The error is fs.ErrNotExist if there is none.
func (w *Writer) ReadClaim(uid string) (Claim, error) {
	name := w.FileName(claimKind + uid)
	spec := w.read(name)
	if spec == nil {
		_, err := os.Lstat(filepath.Join(w.Dir, name))
		if err != nil {
			return Claim{}, fmt.Errorf("--cdi-dir: %w", err)
		}
		return Claim{}, fmt.Errorf("--cdi-dir: %s is not the spec of a claim: remove it when no container uses the devices of the claim", name)
	}
	claim := Claim{
		UID:       uid,
		Namespace: spec.Annotations[namespaceKey],
		Name:      spec.Annotations[nameKey],
		PodClaim:  spec.Annotations[podClaimKey],
		Pods:      split(spec.Annotations[podsKey]),
	}
	for _, d := range spec.Devices {
		r := Request{
			Name:    strings.ReplaceAll(d.Name, ".", "/"),
			Devices: split(d.Annotations[devicesKey]),
		}
		for _, m := range d.ContainerEdits.Mounts {
			r.Mounts = append(r.Mounts, device.Mount{
				HostPath:      m.HostPath,
				ContainerPath: m.ContainerPath,
				ReadOnly:      slices.Contains(m.Options, "ro"),
			})
		}
		claim.Requests = append(claim.Requests, r)
	}
	return claim, nil
}

// split is the inverse of strings.Join with a comma; no text is no elements.
func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// ClaimPath is the path of the file of a claim.
func (w *Writer) ClaimPath(uid string) string {
	return filepath.Join(w.Dir, w.FileName(claimKind+uid))
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
