package dra

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/generic-dp/generic-dp/internal/order"
)

// The fields of resource.k8s.io/v1 that are used, with the names of the API.

// slice is a ResourceSlice.
type slice struct {
	APIVersion string    `json:"apiVersion,omitempty"`
	Kind       string    `json:"kind,omitempty"`
	Metadata   metadata  `json:"metadata"`
	Spec       sliceSpec `json:"spec"`
}

// metadata is the ObjectMeta of any object.
type metadata struct {
	Name            string            `json:"name,omitempty"`
	Namespace       string            `json:"namespace,omitempty"`
	UID             string            `json:"uid,omitempty"`
	ResourceVersion string            `json:"resourceVersion,omitempty"`
	Annotations     map[string]string `json:"annotations,omitempty"`
	OwnerReferences []ownerReference  `json:"ownerReferences,omitempty"`
}

// version is ordered for the objects of one kind. It is 0 if the version is missing or not a
// number.
func (m *metadata) version() uint64 {
	v, _ := strconv.ParseUint(m.ResourceVersion, 10, 64)
	return v
}

// ownerReference names the object with which another object is deleted.
type ownerReference struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller"`
}

// sliceSpec has the devices of one slice. All slices of a node are one pool.
type sliceSpec struct {
	Driver   string `json:"driver"`
	Pool     pool   `json:"pool"`
	NodeName string `json:"nodeName"`
	// A slice has either devices or counters.
	Devices        []sliceDevice `json:"devices,omitempty"`
	SharedCounters []counterSet  `json:"sharedCounters,omitempty"`
}

// pool identifies the slices that belong together: ResourceSliceCount slices of one generation.
type pool struct {
	Name               string `json:"name"`
	Generation         int64  `json:"generation"`
	ResourceSliceCount int    `json:"resourceSliceCount"`
}

// sliceDevice is one device of a slice.
type sliceDevice struct {
	Name                     string               `json:"name"`
	Attributes               map[string]attribute `json:"attributes,omitempty"`
	Capacity                 map[string]capacity  `json:"capacity,omitempty"`
	Taints                   []taint              `json:"taints,omitempty"`
	AllowMultipleAllocations bool                 `json:"allowMultipleAllocations,omitempty"`
	ConsumesCounters         []consumption        `json:"consumesCounters,omitempty"`
}

// attribute has exactly one of its fields.
type attribute struct {
	String  *string `json:"string,omitempty"`
	Int     *int64  `json:"int,omitempty"`
	Bool    *bool   `json:"bool,omitempty"`
	Version *string `json:"version,omitempty"`
}

// capacity is an amount of a device. Without a policy, a claim that names no amount consumes all of
// it.
type capacity struct {
	Value         string         `json:"value"`
	RequestPolicy *requestPolicy `json:"requestPolicy,omitempty"`
}

// requestPolicy says which amounts a claim may consume of a capacity.
type requestPolicy struct {
	Default     string   `json:"default,omitempty"`
	ValidValues []string `json:"validValues,omitempty"`
}

// taint keeps pods away from a device, or evicts them, as Effect says.
type taint struct {
	Key       string    `json:"key"`
	Value     string    `json:"value"`
	Effect    string    `json:"effect"`
	TimeAdded time.Time `json:"timeAdded"`
}

// Names and values that the API defines.
const (
	numaNode   = "resource.kubernetes.io/numaNode"
	noSchedule = "NoSchedule"
	noExecute  = "NoExecute"
)

// taintKey is the key of the taint of a device that is not healthy; its value is the
// state.
const taintKey = Driver + "/unhealthy"

// taintValues are the values of the taint. A healthy device has no taint.
var taintValues = map[State]string{
	Withheld:  "withheld",
	Settling:  "settling",
	Unhealthy: "unhealthy",
	Gone:      "gone",
}

// published returns the entry of d in a ResourceSlice, and the time at which the entry changes
// although d does not. The time is zero if there is none.
func (d *Device) published(now time.Time) (out sliceDevice, next time.Time) {
	out = sliceDevice{
		Name:                     d.name,
		Attributes:               d.attributes(),
		Capacity:                 d.capacity(),
		AllowMultipleAllocations: d.Slots > 1,
		ConsumesCounters:         d.consumes,
	}
	if d.State == Healthy {
		return out, next
	}
	t := taint{
		Key:       taintKey,
		Value:     taintValues[d.State],
		Effect:    noSchedule,
		TimeAdded: d.Since,
	}
	// Only an absent device evicts pods, see Device.EvictAfter.
	if d.State == Gone && d.EvictAfter >= 0 {
		if evict := d.Since.Add(d.EvictAfter); evict.After(now) {
			next = evict
		} else {
			t.Effect = noExecute
			t.TimeAdded = evict
		}
	}
	t.TimeAdded = t.TimeAdded.UTC().Truncate(time.Second) // the precision of the API
	out.Taints = []taint{t}
	return out, next
}

// sum identifies a device as published, but for its taints: these change with its state.
func (d sliceDevice) sum() sum {
	d.Taints = nil
	return (&sliceSpec{Devices: []sliceDevice{d}}).sum()
}

// maxDevices is the maximum number of devices of a slice in which any has a taint. Every
// device may get one.
const maxDevices = 64

// sorted returns the devices by name.
func sorted(devices []Device) []Device {
	out := slices.Clone(devices)
	for i := range out {
		out[i].name = out[i].Name()
	}
	order.Sort(out, func(a, b Device) int {
		return cmp.Compare(a.name, b.name)
	})
	return out
}

// sliceName is the name of slice i of a node. The admission policy lets no other node use
// its prefix.
func sliceName(node string, i int) string {
	return node + "-" + Driver + "-" + strconv.Itoa(i)
}

// sum identifies the text of a spec, of which only this is kept.
type sum [sha256.Size]byte

func (s *sliceSpec) sum() sum {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	return sha256.Sum256(text)
}
