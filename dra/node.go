package dra

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubeapi"
)

const (
	slicesPath = "/apis/resource.k8s.io/v1/resourceslices"
	nodesPath  = "/api/v1/nodes/"
)

// nodeSlices are the slices of a node: those of the API server, and those to have.
//
// All are one pool. Consumers ignore slices that do not have its highest generation, and
// allocate no device of a pool that lacks one of that. A device that changes is an update
// of its slice alone, in the same generation. Where devices come or go, others may change
// slices: if there are several, all are written with the next generation, and no device is
// allocatable in between.
type nodeSlices struct {
	api  *kubeapi.Client
	name string
	// uid of the node; empty is unknown.
	uid string
	// stored has the slices of the API server, by name.
	stored     map[string]*stored
	generation int64
	devices    []string // of all slices, in order
}

// stored is a slice of the API server.
type stored struct {
	version uint64
	spec    sum
	// sent is the spec that was last written, and got what the server made of it: it
	// drops the fields of disabled features.
	sent, got sum
}

// has reports whether the server has want, as far as it can.
func (s *stored) has(want sum) bool {
	return s.spec == want || s.sent == want && s.got == s.spec
}

func newNodeSlices(api *kubeapi.Client, name string) *nodeSlices {
	return &nodeSlices{api: api, name: name, stored: map[string]*stored{}, generation: 1}
}

// object is a slice from the API server.
type object struct {
	Metadata metadata        `json:"metadata"`
	Spec     json.RawMessage `json:"spec"`

	deleted bool // of an event
}

// selector selects the node's slices of this driver, so that a node never sees more.
func (n *nodeSlices) selector() string {
	return slicesPath + "?fieldSelector=" + url.QueryEscape("spec.nodeName="+n.name+",spec.driver="+Driver)
}

// list reads all slices, and returns the version to watch from.
func (n *nodeSlices) list(ctx context.Context) (version string, err error) {
	var list struct {
		Metadata metadata
		Items    []object
	}
	if err := n.api.Get(ctx, n.selector(), &list); err != nil {
		return "", err
	}
	known, specs := n.stored, map[string]sliceSpec{}
	n.stored = map[string]*stored{}
	for _, o := range list.Items {
		if s := known[o.Metadata.Name]; s != nil {
			n.stored[o.Metadata.Name] = s
		}
		specs[o.Metadata.Name] = n.store(o)
	}
	n.devices = nil
	for i := range len(specs) {
		for _, d := range specs[sliceName(n.name, i)].Devices {
			n.devices = append(n.devices, d.Name)
		}
	}
	n.uid = "" // who deleted slices may have been the garbage collector, after the node
	return list.Metadata.ResourceVersion, nil
}

// quiet is longer than a server lets a watch without bookmarks last.
const quiet = 90 * time.Minute

// watch sends the changes since version until the watch ends, after an event of no slice
// when it has begun.
func (n *nodeSlices) watch(ctx context.Context, version string, events chan<- object) error {
	return n.api.Watch(ctx, n.selector()+"&watch=1&resourceVersion="+url.QueryEscape(version), quiet, func(e kubeapi.Event) error {
		out := object{deleted: e.Type == "DELETED"}
		if e.Type != "" {
			if err := json.Unmarshal(e.Object, &out); err != nil {
				return err
			}
		}
		select {
		case events <- out:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// foreign reports whether o is a change by somebody else. Events are late: resource
// versions are ordered, and those of own writes are known.
func (n *nodeSlices) foreign(o object) bool {
	if s := n.stored[o.Metadata.Name]; s != nil {
		return version(o) > s.version
	}
	return o.Metadata.Name != "" && !o.deleted
}

// store remembers a slice of the server.
func (n *nodeSlices) store(o object) sliceSpec {
	s := n.stored[o.Metadata.Name]
	if s == nil {
		s = &stored{}
		n.stored[o.Metadata.Name] = s
	}
	s.version = version(o)
	var spec sliceSpec
	strict := json.NewDecoder(bytes.NewReader(o.Spec))
	strict.DisallowUnknownFields() // they are an error at the end, and an edit
	if strict.Decode(&spec) == nil {
		s.spec = spec.sum()
	} else {
		s.spec = sha256.Sum256(o.Spec)
	}
	n.generation = max(n.generation, spec.Pool.Generation)
	return spec
}

func version(o object) uint64 {
	v, _ := strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64)
	return v
}

// specs are the slices to have for devices, which are sorted, and when that changes by
// itself.
func (n *nodeSlices) specs(devices []Device, now time.Time) (specs []sliceSpec, next time.Time) {
	names := make([]string, len(devices))
	for i := range devices {
		names[i] = devices[i].name
	}
	count := (len(devices) + maxDevices - 1) / maxDevices
	if max(count, len(n.stored)) > 1 && !slices.Equal(names, n.devices) {
		n.generation++
	}
	n.devices = names
	for part := range slices.Chunk(devices, maxDevices) {
		spec := sliceSpec{
			Driver:   Driver,
			Pool:     pool{Name: n.name, Generation: n.generation, ResourceSliceCount: count},
			NodeName: n.name,
		}
		for i := range part {
			out, change := part[i].published(now)
			if !change.IsZero() && (next.IsZero() || change.Before(next)) {
				next = change
			}
			spec.Devices = append(spec.Devices, out)
		}
		specs = append(specs, spec)
	}
	return specs, next
}

// write makes the server's slices equal to specs, and returns how many were written; done is
// called for each.
func (n *nodeSlices) write(ctx context.Context, specs []sliceSpec, done func(error)) (wrote int, err error) {
	wanted := make(map[string]bool, len(specs))
	for i := range specs {
		name := sliceName(n.name, i)
		wanted[name] = true
		if s := n.stored[name]; s != nil && s.has(specs[i].sum()) {
			continue
		}
		err := n.put(ctx, i, specs[i])
		if done(err); err != nil {
			return wrote, err
		}
		wrote++
	}
	for name := range n.stored {
		if wanted[name] {
			continue
		}
		err := n.api.Delete(ctx, slicesPath+"/"+name)
		if kubeapi.Code(err) == http.StatusNotFound {
			err = nil
		}
		if done(err); err != nil {
			return wrote, err
		}
		delete(n.stored, name)
		wrote++
	}
	return wrote, nil
}

// object is slice i of the node.
func (n *nodeSlices) object(i int, spec sliceSpec) slice {
	return slice{
		APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice",
		Metadata: metadata{Name: sliceName(n.name, i), OwnerReferences: []ownerReference{{
			APIVersion: "v1", Kind: "Node", Name: n.name, UID: n.uid, Controller: true,
		}}},
		Spec: spec,
	}
}

// put creates or replaces slice i, whatever version the server has.
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
	var in object
	var err error
	if n.stored[name] != nil {
		err = n.api.Update(ctx, slicesPath+"/"+name, out, &in)
	}
	// Somebody may have deleted it a moment ago.
	if n.stored[name] == nil || kubeapi.Code(err) == http.StatusNotFound {
		err = n.api.Create(ctx, slicesPath, out, &in)
	}
	if err != nil {
		return err
	}
	n.store(in)
	s := n.stored[name]
	s.sent, s.got = spec.sum(), s.spec
	return nil
}
