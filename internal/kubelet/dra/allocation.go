package dra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// resourceClaim is a ResourceClaim of resource.k8s.io/v1, with the fields that are used. Unknown
// fields are ignored.
type resourceClaim struct {
	Metadata metadata `json:"metadata"`
	Status   struct {
		// Allocation is nil until the scheduler has chosen devices, and again after the last pod
		// has ended.
		Allocation *struct {
			Devices struct {
				Results []allocated    `json:"results"`
				Config  []deviceConfig `json:"config"`
			} `json:"devices"`
		} `json:"allocation"`
		// ReservedFor are the consumers that may use the claim now.
		ReservedFor []consumer `json:"reservedFor"`
	} `json:"status"`
}

// allocated is one device of a claim, or a share of one.
type allocated struct {
	Request string `json:"request"`
	Driver  string `json:"driver"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	// ShareID distinguishes several shares of one device. It is nil if the device is not shared.
	ShareID *string `json:"shareID"`
	// AdminAccess is access to a device beside its holders.
	AdminAccess bool `json:"adminAccess"`
	// ConsumedCapacity are the amounts of a device that allows multiple allocations.
	ConsumedCapacity map[string]string `json:"consumedCapacity"`
}

// deviceConfig is the configuration of devices for one driver.
type deviceConfig struct {
	Opaque struct {
		Driver string `json:"driver"`
	} `json:"opaque"`
}

// isOwn reports whether the configuration is for this driver. It comes from the claim or its class.
func (c deviceConfig) isOwn() bool { return c.Opaque.Driver == Driver }

// consumer is an object that may use a claim.
type consumer struct {
	APIGroup string `json:"apiGroup"`
	Resource string `json:"resource"`
	UID      string `json:"uid"`
}

// maxList is the maximum length of each list of a claim. The API server allows 32 results, 64
// configurations and 256 consumers (AllocationResultsMaxSize, DeviceConfigMaxSize and
// ResourceClaimReservedForMaxSize in k8s.io/api/resource/v1).
const maxList = 256

// label reports whether a name is a DNS label. Only lower-case letters are allowed, as in names of
// the API.
func label(name string) bool {
	if name == "" || len(name) > maxLabel {
		return false
	}
	atEnd := name[0] == '-' || name[len(name)-1] == '-'
	return !atEnd && strings.Trim(name, lower+"-") == ""
}

// requestName reports whether a name is the name of a request, or of a subrequest,
// "REQUEST/SUBREQUEST". It becomes part of the paths of files.
func requestName(name string) bool {
	base, sub, isSub := strings.Cut(name, "/")
	return label(base) && (!isSub || label(sub))
}

// check returns why the claim can't be prepared here. uid is the UID in the call of the kubelet.
// The texts continue a sentence that begins with the name of the claim.
func (o *resourceClaim) check(uid string) error {
	if o.Metadata.UID != uid {
		return fmt.Errorf("is another one now: its UID is %s, not %s", o.Metadata.UID, uid)
	}
	if o.Status.Allocation == nil {
		return errors.New("is not allocated")
	}
	devices := o.Status.Allocation.Devices
	longest := max(len(devices.Results), len(devices.Config), len(o.Status.ReservedFor))
	if longest > maxList {
		return fmt.Errorf("has a list of more than %d elements", maxList)
	}
	// Parameters that are ignored might have been meant to take away something.
	hasParameters := slices.ContainsFunc(devices.Config, deviceConfig.isOwn)
	if hasParameters {
		return fmt.Errorf("has parameters for %s, which the driver does not support: configure another resource instead", Driver)
	}
	return nil
}

// check returns why a device of this driver can't be prepared on a node.
func (a *allocated) check(node string) error {
	if pool := PoolName(node); a.Pool != pool {
		return fmt.Errorf("device %q is of pool %s, not of the pool of this node (%s)", a.Device, a.Pool, pool)
	}
	if !requestName(a.Request) {
		return fmt.Errorf("request %q of device %q: the name must be a DNS label, or two with a slash between them",
			a.Request, a.Device)
	}
	if a.AdminAccess {
		return fmt.Errorf("request %s: adminAccess to device %q is not supported: no container gets a device beside its holders",
			a.Request, a.Device)
	}
	return nil
}

// fullName returns "NAMESPACE/NAME" of a claim, for messages.
func fullName(claim cdi.Claim) string { return claim.Namespace + "/" + claim.Name }

// pods are the UIDs of the pods that may use the claim.
func (o *resourceClaim) pods() []string {
	var uids []string
	for _, c := range o.Status.ReservedFor {
		isPod := c.APIGroup == "" && c.Resource == "pods"
		if isPod {
			uids = append(uids, c.UID)
		}
	}
	slices.Sort(uids)
	return uids
}

// allocation returns the devices of a claim that belong to this driver, and completes the claim.
// The devices are in groups that must fit into one container. Any container may use a whole claim,
// therefore it is one group. The scheduler makes the claim of a pod's extended resources with a
// request for each container and resource, each of which is a group.
func (c *claims) allocation(ctx context.Context, claim *cdi.Claim) ([][]allocated, error) {
	object, err := c.get(ctx, claim.Namespace, claim.Name)
	if err != nil {
		return nil, err
	}
	if err := object.check(claim.UID); err != nil {
		return nil, err
	}
	claim.Pods = object.pods()
	claim.IsOwned = object.isOwnedBy(claim.Pods)
	// Anybody may annotate a claim.
	if name := object.Metadata.Annotations["resource.kubernetes.io/pod-claim-name"]; label(name) {
		claim.PodClaim = name
	}
	extended := object.Metadata.Annotations["resource.kubernetes.io/extended-resource-claim"] == "true"
	var groups [][]allocated
	for _, a := range object.Status.Allocation.Devices.Results {
		// A claim may have devices of several drivers.
		if a.Driver != Driver {
			continue
		}
		if err := a.check(c.Node); err != nil {
			return nil, err
		}
		i := slices.IndexFunc(groups, func(g []allocated) bool {
			// An ordinary claim has one group, so its first one is the right one.
			return !extended || g[0].Request == a.Request
		})
		if i < 0 {
			groups = append(groups, nil)
			i = len(groups) - 1
		}
		groups[i] = append(groups[i], a)
	}
	if len(groups) == 0 {
		return nil, fmt.Errorf("has no device of %s", Driver)
	}
	return groups, nil
}

// mayAnswer reports whether a request to the API server that failed may succeed later without a change
// by an administrator.
func mayAnswer(err error) bool {
	code := kubeapi.Code(err)
	// There was no answer with a status: the connection failed or was cut off.
	if code == 0 {
		var network net.Error
		return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	}
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// get reads a claim from the API server, once. The error has the HTTP status, see kubeapi.Code.
func (c *claims) get(ctx context.Context, namespace, name string) (*resourceClaim, error) {
	object := new(resourceClaim)
	if err := c.API.Get(ctx, claimPath(namespace, name), object); err != nil {
		return nil, fmt.Errorf("can't be read: %w", err)
	}
	return object, nil
}

// claimPath is the path of a claim at the API server.
func claimPath(namespace, name string) string {
	return "/apis/resource.k8s.io/v1/namespaces/" + url.PathEscape(namespace) + "/resourceclaims/" + url.PathEscape(name)
}
