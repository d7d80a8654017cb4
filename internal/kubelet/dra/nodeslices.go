package dra

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/order"
)

const (
	slicesPath = "/apis/resource.k8s.io/v1/resourceslices"
	nodesPath  = "/api/v1/nodes/"
)

// nodeSlices are the slices of a node, as the API server has them and as it should have them.
//
// All slices are one pool. Consumers ignore slices that do not have the highest generation of the
// pool, and allocate no device of a pool that lacks a slice of this generation. A slice that changes alone
// is updated in the same generation. If several change, a device may move from one slice to another, or
// counters may have other values: then all slices are written with the next generation, and no device is
// allocatable in between. Counters are in slices of their own, after the slices with devices.
type nodeSlices struct {
	api  *kubeapi.Client
	name string
	// uid is the UID of the node, empty if it was not read since the last list.
	uid string
	// stored has the slices of the API server, by name.
	stored map[string]storedSlice
	// generation is the highest one that was seen or written.
	generation int64
	// isPartial is set while some slices of the generation are not written. The others are written first
	// if they change meanwhile, so that the pool is whole when the last one is written.
	isPartial bool
	// refused has why the API server refuses devices in this session, see sliceDevice.sum.
	refused map[sum]string
}

// errRefused says that the API server refuses devices of a slice: the others can be written.
var errRefused = errors.New("the API server refuses devices")

// storedSlice is a slice of the API server. Its spec is the one last written, since the
// server drops fields of disabled features, unless somebody changed the slice since.
type storedSlice struct {
	// version is the resource version, which only changes when somebody writes the slice.
	version uint64
	spec    sum
}

// newNodeSlices returns the slices of a node of which nothing was read. list must come first.
func newNodeSlices(api *kubeapi.Client, name string) *nodeSlices {
	return &nodeSlices{
		api:    api,
		name:   name,
		stored: map[string]storedSlice{},
	}
}

// selector selects the node's slices of this driver, so that a node never sees more.
func (n *nodeSlices) selector() string {
	return slicesPath + "?fieldSelector=" + url.QueryEscape("spec.nodeName="+n.name+",spec.driver="+Driver)
}

// list reads all slices, and returns the version to watch from. After an error, the slices are as
// they were.
func (n *nodeSlices) list(ctx context.Context) (version string, err error) {
	stored := map[string]storedSlice{}
	version, err = n.api.List(ctx, n.selector(), func(object json.RawMessage) error {
		var o struct {
			Metadata metadata
			Spec     json.RawMessage
		}
		if err := json.Unmarshal(object, &o); err != nil {
			return err
		}
		var spec sliceSpec
		s := storedSlice{version: o.Metadata.version()}
		strict := json.NewDecoder(bytes.NewReader(o.Spec))
		strict.DisallowUnknownFields() // they are an error at the end, and an edit
		if strict.Decode(&spec) == nil && n.owns(o.Metadata) {
			s.spec = spec.sum()
		}
		// Nobody has changed the slice since the last own write, so its spec is known.
		if own := n.stored[o.Metadata.Name]; own.version == s.version {
			s = own
		}
		stored[o.Metadata.Name] = s
		n.generation = max(n.generation, spec.Pool.Generation)
		return nil
	})
	if err != nil {
		return "", err
	}
	n.stored = stored
	n.refused = map[sum]string{} // the server may be of another version now
	n.uid = ""                   // the garbage collector may have deleted slices with their node, which has another UID now
	return version, nil
}

// owns reports whether the only owner of a slice is the node. Otherwise, the slice would outlive
// the node, or be deleted with another object. The garbage collector deletes a slice with another UID.
func (n *nodeSlices) owns(slice metadata) bool {
	want := n.owners()
	for _, owner := range slice.OwnerReferences {
		want[0].UID = owner.UID
	}
	return slices.Equal(slice.OwnerReferences, want) && want[0].UID != ""
}

// owners are the owners of a slice: the garbage collector deletes it with the node, whose UID must be
// known.
func (n *nodeSlices) owners() []ownerReference {
	return []ownerReference{{
		APIVersion: "v1",
		Kind:       "Node",
		Name:       n.name,
		UID:        n.uid,
		Controller: true,
	}}
}

// idleTimeout is longer than a server lets a watch without bookmarks last.
const idleTimeout = 90 * time.Minute

// sliceEvent is an event of the watch; the first has no name and says that the watch began.
type sliceEvent struct {
	Metadata metadata
	deleted  bool
}

// watch sends the changes since version until the watch ends. changes has no buffer: session
// receives until it cancels ctx.
func (n *nodeSlices) watch(ctx context.Context, version string, changes chan<- sliceEvent) error {
	return n.api.Watch(ctx, n.selector()+"&watch=1&resourceVersion="+url.QueryEscape(version), idleTimeout, func(e kubeapi.Event) error {
		c := sliceEvent{deleted: e.Type == "DELETED"}
		if e.Type != "" {
			if err := json.Unmarshal(e.Object, &c); err != nil {
				return err
			}
		}
		select {
		case changes <- c:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// foreign reports whether somebody else has made the change c. Events are late, but resource
// versions are ordered, and the versions of own writes are known.
func (n *nodeSlices) foreign(c sliceEvent) bool {
	// The deletion of a known slice also has a higher version.
	if s, ok := n.stored[c.Metadata.Name]; ok {
		return c.Metadata.version() > s.version
	}
	return c.Metadata.Name != "" && !c.deleted
}

// specs returns the slices for devices, which are sorted, and their counters, and when the slices
// change without another list. next is the zero time if they do not. specs raises the generation if
// necessary.
func (n *nodeSlices) specs(devices []Device, sets []counterSet, now time.Time) (specs []sliceSpec, next time.Time) {
	// Without devices there are no slices.
	for part := range slices.Chunk(devices, maxDevices) {
		var spec sliceSpec
		for i := range part {
			out, until := part[i].published(now)
			next = order.Earliest(next, until)
			spec.Devices = append(spec.Devices, out)
		}
		specs = append(specs, spec)
	}
	for part := range slices.Chunk(sets, maxCounterSets) {
		specs = append(specs, sliceSpec{SharedCounters: part})
	}
	for i := range specs {
		specs[i].Driver = Driver
		specs[i].NodeName = n.name
		specs[i].Pool = pool{
			Name:               PoolName(n.name),
			Generation:         n.generation,
			ResourceSliceCount: len(specs),
		}
	}
	if !n.isPartial && n.needsGeneration(specs) {
		n.generation++
		n.isPartial = true
	}
	for i := range specs {
		specs[i].Pool.Generation = n.generation
	}
	return specs, next
}

// needsGeneration reports whether more than one slice changes. A new slice changes the others, too, or is
// the first one.
func (n *nodeSlices) needsGeneration(specs []sliceSpec) bool {
	changed := 0
	for i := range specs {
		s, exists := n.stored[sliceName(n.name, i)]
		if !exists {
			return true
		}
		if s.spec != specs[i].sum() {
			changed++
		}
	}
	return changed > 1
}

// write makes the server's slices equal to specs, and returns how many were written; done is
// called for each. It stops at the first error. Slices that were written until then are not written
// again.
func (n *nodeSlices) write(ctx context.Context, specs []sliceSpec, done func(error)) (wrote int, err error) {
	wanted := map[string]int{}
	for i := range specs {
		wanted[sliceName(n.name, i)] = i
	}
	for name := range n.stored {
		if _, isWanted := wanted[name]; isWanted {
			continue
		}
		err := n.api.Delete(ctx, slicesPath+"/"+name)
		// Somebody else has deleted it.
		if kubeapi.Code(err) == http.StatusNotFound {
			err = nil
		}
		if done(err); err != nil {
			return wrote, err
		}
		delete(n.stored, name)
		wrote++
	}
	for i := range specs {
		s, exists := n.stored[sliceName(n.name, i)]
		if exists && s.spec == specs[i].sum() {
			continue
		}
		err := n.put(ctx, i, specs[i])
		if done(err); err != nil {
			return wrote, n.refuse(specs[i], err)
		}
		wrote++
	}
	n.isPartial = false
	return wrote, nil
}

// refuse returns errRefused if err says which devices of spec are invalid, and otherwise err. It
// adds these devices to refused.
func (n *nodeSlices) refuse(spec sliceSpec, err error) error {
	var answer *kubeapi.Error
	if !errors.As(err, &answer) || answer.Code != http.StatusUnprocessableEntity {
		return err
	}
	for _, c := range answer.Causes {
		rest, _ := strings.CutPrefix(c.Field, "spec.devices[")
		index, field, _ := strings.Cut(rest, "]") // the index changes with other devices
		if i, invalid := strconv.Atoi(index); invalid == nil && 0 <= i && i < len(spec.Devices) {
			n.refused[spec.Devices[i].sum()] = strings.TrimLeft(field+": "+c.Message, ".: ")
			err = errRefused
		}
	}
	return err
}

// accepted returns the devices that the API server does not refuse as they are, and why it
// refuses the others, by ID. A device whose attributes change is tried again, because its sum is
// another one. left has devices that are left out for another reason.
func (n *nodeSlices) accepted(devices []Device, left map[string]string, now time.Time) (accepted []Device, refused map[string]string) {
	if len(n.refused) == 0 && len(left) == 0 {
		return devices, nil
	}
	refused = maps.Clone(left)
	for _, d := range devices {
		published, _ := d.published(now)
		reason, isRefused := n.refused[published.sum()]
		if isRefused {
			refused[d.ID] = reason
		}
		if refused[d.ID] == "" {
			accepted = append(accepted, d)
		}
	}
	return accepted, refused
}

// object is slice i of the node.
func (n *nodeSlices) object(i int, spec sliceSpec) slice {
	return slice{
		APIVersion: "resource.k8s.io/v1",
		Kind:       "ResourceSlice",
		Metadata:   metadata{Name: sliceName(n.name, i), OwnerReferences: n.owners()},
		Spec:       spec,
	}
}

// put creates slice i, or replaces any version that the server has.
func (n *nodeSlices) put(ctx context.Context, i int, spec sliceSpec) error {
	if n.uid == "" {
		var node struct{ Metadata metadata }
		if err := n.api.Get(ctx, nodesPath+n.name, &node); err != nil {
			return err
		}
		n.uid = node.Metadata.UID
	}
	out := n.object(i, spec)
	name := out.Metadata.Name
	var in struct{ Metadata metadata }
	var err error
	_, exists := n.stored[name]
	if exists {
		err = n.api.Update(ctx, slicesPath+"/"+name, out, &in)
	}
	// Somebody may have deleted it a moment ago.
	if !exists || kubeapi.Code(err) == http.StatusNotFound {
		err = n.api.Create(ctx, slicesPath, out, &in)
	}
	if err == nil {
		n.stored[name] = storedSlice{version: in.Metadata.version(), spec: spec.sum()}
	}
	return err
}
