package dra

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/sys/atomicfile"
)

// metadataRoot is the directory of device metadata in a container (KEP-5304).
const metadataRoot = "/var/run/kubernetes.io/dra-device-attributes"

// deviceMetadata is a DeviceMetadata of metadata.resource.k8s.io, as far as it is used. A
// file has it once in each version, of which consumers take the first that they know.
type deviceMetadata struct {
	Kind         string            `json:"kind"`
	APIVersion   string            `json:"apiVersion"`
	Metadata     metadata          `json:"metadata"`
	PodClaimName string            `json:"podClaimName,omitempty"`
	Requests     []metadataRequest `json:"requests"`
}

// metadataRequest is one request of a claim, with the devices of this driver.
type metadataRequest struct {
	Name    string           `json:"name"`
	Devices []metadataDevice `json:"devices"`
}

// metadataDevice describes a device. An absent attribute is left out.
type metadataDevice struct {
	Driver     string               `json:"driver"`
	Pool       string               `json:"pool"`
	Name       string               `json:"name"`
	Attributes map[string]attribute `json:"attributes,omitempty"`
}

// metadataVersions are all versions, newest first. They differ in nothing else.
var metadataVersions = [...]string{"v1beta1", "v1alpha1"}

// baseRequest is the request of a subrequest, "gpu" of "gpu/small". Containers, and paths
// of metadata, know only that.
func baseRequest(name string) string {
	base, _, _ := strings.Cut(name, "/")
	return base
}

// metadataFile is the file on the host for a request of a claim. release finds the files of a claim
// by the UID and the dot.
func (p *Plugin) metadataFile(uid, request string) string {
	return filepath.Join(p.Metadata, uid+"."+baseRequest(request)+".json")
}

// metadataMount mounts that file into a container. Consumers know a claim by what the pod calls it
// if it was made from a template, and by its own name otherwise. The file is written when the claim
// is prepared, see commit.
func (p *Plugin) metadataMount(c cdi.Claim, request string) device.Mount {
	kind := "resourceclaims"
	name := c.Name
	if c.PodClaim != "" {
		kind = "resourceclaimtemplates"
		name = c.PodClaim
	}
	return device.Mount{
		HostPath:      p.metadataFile(c.UID, request),
		ContainerPath: path.Join(metadataRoot, kind, name, baseRequest(request), Driver+"-metadata.json"),
		ReadOnly:      true,
	}
}

// writeMetadata writes the files of a claim. A file is replaced: a running container keeps the
// description of the device that it got, and a container that restarts sees the new one. The file
// of a device that is gone stays as it is. devices are by "RESOURCE=ID". The caller holds the lock
// of the claim.
func (p *Plugin) writeMetadata(c cdi.Claim, devices map[string]*Device) error {
	errs := []error{os.MkdirAll(p.Metadata, 0o755)}
next:
	for _, r := range c.Requests {
		request := metadataRequest{Name: r.Name}
		for _, name := range slices.Concat(r.Devices, r.Admin) {
			v := devices[name]
			// A file with some of the devices would be wrong.
			if v == nil || v.Attributes == nil {
				continue next
			}
			request.Devices = append(request.Devices, metadataDevice{
				Driver:     Driver,
				Pool:       PoolName(p.Node),
				Name:       v.Name(),
				Attributes: v.describe(r),
			})
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetIndent("", "  ")
		// The versions follow one another in the file, as a stream of JSON values.
		for _, version := range metadataVersions {
			err := encoder.Encode(deviceMetadata{
				Kind:         "DeviceMetadata",
				APIVersion:   "metadata.resource.k8s.io/" + version,
				Metadata:     metadata{Name: c.Name, Namespace: c.Namespace, UID: c.UID},
				PodClaimName: c.PodClaim,
				Requests:     []metadataRequest{request},
			})
			errs = append(errs, err)
		}
		errs = append(errs, atomicfile.Write(p.metadataFile(c.UID, r.Name), text.Bytes(), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("device metadata: %w", err)
	}
	return nil
}

// describe keeps the metadata of prepared claims in line with the attributes of their devices,
// which a replug may change, until ctx is cancelled.
func (p *Plugin) describe(ctx context.Context) {
	failed := false
	for {
		// The channel comes with the list, so that a change during the writes is not missed.
		devices, changed := p.Devices.Get()
		err := p.rewriteMetadata(ctx, devices)
		if err != nil && !failed && ctx.Err() == nil {
			p.Log.Warn("device metadata is out of date", "err", err)
		}
		failed = err != nil
		var again <-chan time.Time
		if failed {
			again = time.After(describeAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
	}
}

// describeAgain is the time until failed writes are repeated: no event announces that a
// file system has space again.
const describeAgain = time.Minute

// rewriteMetadata writes the metadata of all prepared claims. One that fails does not prevent the
// others.
func (p *Plugin) rewriteMetadata(ctx context.Context, devices []Device) error {
	prepared := p.records.all()
	byKey := map[string]*Device{}
	for i := range devices {
		byKey[devices[i].key()] = &devices[i]
	}
	var errs []error
	for _, h := range prepared {
		errs = append(errs, p.describeClaim(ctx, h.claim.UID, byKey))
	}
	return errors.Join(errs...)
}

// describeClaim writes the metadata of a claim, unless the claim was removed meanwhile.
func (p *Plugin) describeClaim(ctx context.Context, uid string, devices map[string]*Device) (err error) {
	ctx, cancel := context.WithTimeout(ctx, p.timing.answer)
	defer cancel()
	defer p.recover("metadata", &err)
	unlock, err := p.locks.lock(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	h, prepared := p.records.get(uid)
	if !prepared {
		return nil
	}
	return p.writeMetadata(h.claim, devices)
}
