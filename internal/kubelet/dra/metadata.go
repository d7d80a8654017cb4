package dra

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/device"
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
// description of the device that it got. It need not survive a power failure, after which the kubelet
// prepares the claim again.
func (c *claims) writeMetadata(f *filled) error {
	errs := []error{os.MkdirAll(c.Metadata, 0o755)}
	for _, r := range f.claim.Requests {
		request := metadataRequest{Name: r.Name}
		for _, ref := range r.Devices {
			d := f.held[ref.ID]
			request.Devices = append(request.Devices, metadataDevice{
				Driver:     Driver,
				Pool:       PoolName(c.Node),
				Name:       d.Name(),
				Attributes: d.attributes(),
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
				Metadata:     metadata{Name: f.claim.Name, Namespace: f.claim.Namespace, UID: f.claim.UID},
				PodClaimName: f.claim.PodClaim,
				Requests:     []metadataRequest{request},
			})
			errs = append(errs, err)
		}
		errs = append(errs, files.Overwrite(c.metadataFile(f.claim.UID, r.Name), text.Bytes(), 0o644))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("device metadata: %w", err)
	}
	return nil
}
