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
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/socket"
	"github.com/generic-dp/generic-dp/internal/sys/files"
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
func (c *claims) metadataFile(uid, request string) string {
	return filepath.Join(c.Metadata, uid+"."+baseRequest(request)+".json")
}

// metadataMount mounts that file into a container. Consumers know a claim by what the pod calls it
// if it was made from a template, and by its own name otherwise. The file is written when the claim
// is prepared, see commit.
func (c *claims) metadataMount(claim cdi.Claim, request string) device.Mount {
	kind := "resourceclaims"
	name := claim.Name
	if claim.PodClaim != "" {
		kind = "resourceclaimtemplates"
		name = claim.PodClaim
	}
	return device.Mount{
		HostPath:      c.metadataFile(claim.UID, request),
		ContainerPath: path.Join(metadataRoot, kind, name, baseRequest(request), Driver+"-metadata.json"),
		ReadOnly:      true,
	}
}

// writeMetadata writes the files of a claim. A file is replaced: a running container keeps the
// description of the device that it got, and a container that restarts sees the new one. The file
// of a device that is gone stays as it is. The caller holds c.mu.
func (c *claims) writeMetadata(claim cdi.Claim, devices map[device.Ref]*Device) error {
	errs := []error{os.MkdirAll(c.Metadata, 0o755)}
next:
	for _, r := range claim.Requests {
		request := metadataRequest{Name: r.Name}
		for _, ref := range r.Devices {
			v := devices[ref]
			// A file with some of the devices would be wrong.
			if v == nil || v.Attributes == nil {
				continue next
			}
			request.Devices = append(request.Devices, metadataDevice{
				Driver:     Driver,
				Pool:       PoolName(c.Node),
				Name:       v.Name(),
				Attributes: v.attributes(),
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
				Metadata:     metadata{Name: claim.Name, Namespace: claim.Namespace, UID: claim.UID},
				PodClaimName: claim.PodClaim,
				Requests:     []metadataRequest{request},
			})
			errs = append(errs, err)
		}
		errs = append(errs, files.Write(c.metadataFile(claim.UID, r.Name), text.Bytes(), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("device metadata: %w", err)
	}
	return nil
}

// describe keeps the metadata of prepared claims in line with the attributes of their devices,
// which a replug may change, until ctx is cancelled.
func (c *claims) describe(ctx context.Context) {
	for {
		// The channel comes with the list, so that a change during the writes is not missed.
		devices, changed := c.Devices.Get()
		var again <-chan time.Time
		if err := c.rewriteMetadata(devices); err != nil {
			c.Log.Warn("device metadata is out of date", "err", err)
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
func (c *claims) rewriteMetadata(devices []Device) error {
	byRef := map[device.Ref]*Device{}
	for i := range devices {
		byRef[devices[i].ref()] = &devices[i]
	}
	var errs []error
	for _, own := range c.all() {
		errs = append(errs, c.describeClaim(own, byRef))
	}
	return errors.Join(errs...)
}

// describeClaim writes the metadata of a claim, unless the claim was removed meanwhile.
func (c *claims) describeClaim(own *prepared, devices map[device.Ref]*Device) (err error) {
	defer socket.Recovered(c.Log, "metadata", &err)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.byUID[own.UID]
	if now == nil {
		return nil
	}
	return c.writeMetadata(now.Claim, devices)
}
