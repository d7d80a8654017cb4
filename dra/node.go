package dra

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
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
// allocate no device of a pool that lacks one of that. A device stays in its slice, so
// that each slice can be updated by itself, in the same generation; where their number
// changes all are written with the next one, and no device is allocatable in between.
type nodeSlices struct {
	api  *kubeapi.Client
	name string
	// uid of the node; empty is unknown.
	uid string
	// stored has the slices of the API server, by name.
	stored     map[string]*stored
	layout     layout
	count      int
	generation int64
	// refused are devices that the server does not take, and why; left are those of them
	// that the last specs are without, by name.
	refused map[sum]string
	left    map[string]string
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
	return &nodeSlices{api: api, name: name, stored: map[string]*stored{}, layout: layout{}, refused: map[sum]string{}}
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
	known := n.stored
	n.stored = map[string]*stored{}
	specs := map[string]sliceSpec{}
	for _, o := range list.Items {
		if s := known[o.Metadata.Name]; s != nil {
			n.stored[o.Metadata.Name] = s
		}
		specs[o.Metadata.Name] = n.store(o)
	}
	if len(n.stored) < len(known) {
		n.uid = "" // they may have been deleted with the node
	}
	if n.count == 0 {
		n.adopt(specs)
	}
	return list.Metadata.ResourceVersion, nil
}

// adopt takes over the layout of the instance before.
func (n *nodeSlices) adopt(specs map[string]sliceSpec) {
	for {
		spec, ok := specs[sliceName(n.name, n.count)]
		if !ok {
			return
		}
		for _, d := range spec.Devices {
			n.layout[d.Name] = n.count
		}
		n.count++
	}
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

// apply reports whether o is a change by somebody else. Events are late: resource
// versions are ordered, and those of own writes are known.
func (n *nodeSlices) apply(o object) bool {
	name := o.Metadata.Name
	s := n.stored[name]
	var before sum
	switch {
	case name == "", s == nil && o.deleted, s != nil && version(o) <= s.version:
		return false
	case o.deleted:
		delete(n.stored, name)
		n.uid = "" // with the node, the garbage collector deletes its slices
		return true
	case s != nil:
		before = s.spec
	}
	n.store(o)
	return n.stored[name].spec != before
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

// specs are the slices to have for devices, which are sorted, without those that the
// server refuses as they are, and when that changes by itself.
func (n *nodeSlices) specs(devices []Device, now time.Time) (specs []sliceSpec, next time.Time) {
	n.left = map[string]string{}
	if len(n.refused) > 0 {
		all := devices
		devices = nil
		for _, d := range all {
			out, _ := d.published(now)
			if reason, refused := n.refused[out.sum()]; refused {
				n.left[d.name] = reason
			} else {
				devices = append(devices, d)
			}
		}
	}
	count := n.layout.update(devices, n.count)
	if count != n.count {
		n.count = count
		n.generation++
	}
	specs = make([]sliceSpec, count)
	for i := range specs {
		specs[i] = sliceSpec{
			Driver:   Driver,
			Pool:     pool{Name: n.name, Generation: n.generation, ResourceSliceCount: count},
			NodeName: n.name,
		}
	}
	for i := range devices {
		out, change := devices[i].published(now)
		if !change.IsZero() && (next.IsZero() || change.Before(next)) {
			next = change
		}
		spec := &specs[n.layout[out.Name]]
		spec.Devices = append(spec.Devices, out)
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
			if n.refuse(specs[i].Devices, err) {
				err = errRefused
			}
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

// errRefused is the error of a slice with devices that the server does not take.
var errRefused = errors.New("the API server refuses a device")

// refuse notes which devices of a slice are the cause of err, if any is.
func (n *nodeSlices) refuse(devices []sliceDevice, err error) bool {
	var invalid *kubeapi.Error
	if !errors.As(err, &invalid) {
		return false
	}
	found := false
	for _, c := range invalid.Causes {
		index, field, _ := strings.Cut(strings.TrimPrefix(c.Field, "spec.devices["), "]")
		if i, err := strconv.Atoi(index); err == nil && uint(i) < uint(len(devices)) {
			n.refused[devices[i].sum()] = strings.TrimPrefix(strings.TrimPrefix(field, ".")+": "+c.Message, ": ")
			found = true
		}
	}
	return found
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
