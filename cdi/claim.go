package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Claim is a prepared resource claim: its holders, its devices, and the container edits that
// depend on several devices together. It is stored as one spec file, from preparation to
// unpreparation.
type Claim struct {
	// Namespace, Name and UID identify the ResourceClaim.
	Namespace, Name, UID string
	// PodClaim is the name in the pod of a claim that was made from a template.
	PodClaim string
	// Pods are the UIDs of the pods that may use the claim.
	Pods     []string
	Requests []Request
}

// Request is a request of a claim. A container refers to one request or to the whole claim.
type Request struct {
	// Name is the name of the request, or of its subrequest "REQUEST/SUBREQUEST".
	Name string
	// Devices are "RESOURCE=ID", sorted, with repeats for several slots.
	Devices []string
	// Admin are the devices, as "RESOURCE=ID", that the request may access beside their holders.
	// It holds no slot of them.
	Admin []string
	// Shares are the parts that the request has of devices that other claims share.
	Shares []Share
	// Mounts are the health directories of the devices.
	Mounts []device.Mount
	// Env is written for the runtime. ReadClaim leaves it empty.
	Env map[string]string
}

const (
	// claimKind, followed by the UID, is the kind of a claim's spec.
	claimKind = device.OwnDomain + "/claim-"
	// Annotations of a claim's spec, which only this program reads.
	namespaceKey = "generic-dp.github.io/namespace"
	nameKey      = "generic-dp.github.io/name"
	podClaimKey  = "generic-dp.github.io/pod-claim"
	devicesKey   = "generic-dp.github.io/devices"
	podsKey      = "generic-dp.github.io/pods"
)

// Devices are the devices of all requests, as "RESOURCE=ID".
func (c Claim) Devices() []string {
	var all []string
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
	spec := &Spec{
		Kind: claimKind + c.UID,
		Annotations: map[string]string{
			namespaceKey: c.Namespace,
			nameKey:      c.Name,
		},
	}
	if c.PodClaim != "" {
		spec.Annotations[podClaimKey] = c.PodClaim
	}
	setPods(spec, c.Pods)
	for _, r := range c.Requests {
		spec.Devices = append(spec.Devices, specs.Device{
			Name:        entryName(r),
			Annotations: r.annotations(),
			ContainerEdits: Edits{
				Env:    environ(r.Env),
				Mounts: bindMounts(r.Mounts),
			},
		})
	}
	spec.Version, _ = specs.MinimumRequiredVersion(spec) // never fails
	return w.write(w.FileName(spec.Kind), spec)
}

func setPods(spec *Spec, pods []string) {
	if len(pods) > 0 {
		spec.Annotations[podsKey] = strings.Join(pods, ",")
	}
}

// SetClaimPods replaces the pods in the file of a claim. The error is fs.ErrNotExist if there is
// no file.
func (w *Writer) SetClaimPods(uid string, pods []string) error {
	name := w.FileName(claimKind + uid)
	spec := w.read(name)
	if spec == nil || spec.Annotations == nil {
		return w.claimError(name)
	}
	setPods(spec, pods)
	return w.write(name, spec)
}

// claimError is why the file of a claim could not be read.
func (w *Writer) claimError(name string) error {
	_, err := os.Lstat(w.path(name))
	if err != nil {
		return fmt.Errorf("--cdi-dir: %w", err)
	}
	return fmt.Errorf("--cdi-dir: %s is not the spec of a claim: remove it when no container uses the devices of the claim", name)
}

// Claims reads all claims, in the order of their UIDs. It leaves out claims whose file cannot be
// read, and returns an error for each: such a file does not say which devices are held.
func (w *Writer) Claims() ([]Claim, error) {
	files, err := w.ClaimFiles()
	errs := []error{err}
	var claims []Claim
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
	prefix := w.claimPrefix()
	entries, err := os.ReadDir(w.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return files, fmt.Errorf("--cdi-dir: %w", err)
	}
	for _, e := range entries {
		if !isOf(w.Owner, e.Name()) {
			continue // a foreign or a temporary file
		}
		name := strings.TrimSuffix(e.Name(), fileSuffix)
		uid, isClaim := strings.CutPrefix(name, prefix)
		if !isClaim {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return files, fmt.Errorf("--cdi-dir: %w", err)
		}
		files[uid] = info.Sys().(*syscall.Stat_t).Ino
	}
	return files, nil
}

// ReadClaim reads the file of a claim. The error is fs.ErrNotExist if there is none.
func (w *Writer) ReadClaim(uid string) (Claim, error) {
	name := w.FileName(claimKind + uid)
	spec := w.read(name)
	if spec == nil {
		return Claim{}, w.claimError(name)
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
		if err := r.readShares(d.Annotations); err != nil {
			return Claim{}, fmt.Errorf("--cdi-dir: %s: %w", name, err)
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

// split is the inverse of strings.Join with a comma. An empty text has no elements.
func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
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
