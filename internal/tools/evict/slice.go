package evict

import (
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// noExecute is the effect of a taint that deletes pods (DeviceTaintEffectNoExecute in
// k8s.io/api/resource/v1). A claim for extended resources tolerates no taint.
const noExecute = "NoExecute"

// sliceObject has the fields of a ResourceSlice that are needed.
type sliceObject struct {
	metadata
	driver, pool, node string
	generation         int64
	// tainted has the devices whose taints delete pods, with the first of these taints as
	// key=value.
	tainted map[string]string
}

// read implements watched. Everything else in the slice is skipped.
func (o *sliceObject) read(d *kubeapi.Decoder) error {
	return d.Fields(func(name string) error {
		switch name {
		case "metadata":
			return o.readMetadata(d)
		case "spec":
			return o.readSpec(d)
		}
		return d.Skip()
	})
}

// readSpec reads the pool of the slice, and its tainted devices.
func (o *sliceObject) readSpec(d *kubeapi.Decoder) error {
	return d.Fields(func(name string) error {
		switch name {
		case "driver":
			return d.Value(&o.driver)
		case "nodeName":
			return d.Value(&o.node)
		case "pool":
			var pool struct {
				Name       string
				Generation int64
			}
			err := d.Value(&pool)
			o.pool = pool.Name
			o.generation = pool.Generation
			return err
		case "devices":
			return d.Elements(func() error {
				return o.readDevice(d)
			})
		}
		return d.Skip()
	})
}

// readDevice reads the name and the taints of a device.
func (o *sliceObject) readDevice(d *kubeapi.Decoder) error {
	device := ""
	reason := ""
	err := d.Fields(func(name string) error {
		switch name {
		case "name":
			return d.Value(&device)
		case "taints":
			return d.Elements(func() error {
				var taint struct{ Key, Value, Effect string }
				err := d.Value(&taint)
				if taint.Effect == noExecute && reason == "" {
					reason = taint.Key + "=" + taint.Value
				}
				return err
			})
		}
		return d.Skip()
	})
	if reason != "" {
		if o.tainted == nil {
			o.tainted = map[string]string{}
		}
		o.tainted[device] = reason
	}
	return err
}

// update implements watched. A slice without a node has devices that are not part of a node, such
// as devices of a network. They are ignored: only the driver of a node may end the pods of that
// node.
func (o *sliceObject) update(e *evicter, deleted bool) (key string) {
	if deleted || o.node == "" {
		o.tainted = nil
	}
	isChanged, forgotten := e.slices.set(o)
	if forgotten != nil {
		e.warnForgotten(forgotten.node, "", "too many tainted devices: pods of the node that has the most are not evicted", maxRemembered)
		e.judgeNode(forgotten.node)
	}
	if isChanged {
		e.judgeNode(o.node)
		notify(e.unread)
	}
	if len(o.tainted) == 0 {
		return ""
	}
	return o.name
}

// judgeNode decides again about the pods of a node that have claims. The caller holds mu.
func (e *evicter) judgeNode(node string) {
	for _, o := range e.claimed {
		if o.node == node {
			e.judge(o, false)
		}
	}
}

// forgetSlices forgets the slices that are not in a list. The caller holds mu.
func (e *evicter) forgetSlices(listed map[string]bool) {
	for name, node := range e.slices.nodes {
		if listed[name] {
			continue
		}
		e.slices.forget(name)
		e.judgeNode(node)
	}
}

// taints has the slices with tainted devices. All other slices are forgotten.
type taints struct {
	byNode map[string]map[string]*sliceObject // by node and name
	nodes  map[string]string                  // node of each slice, by name
	// devices is the number of tainted devices.
	devices int
}

func newTaints() taints {
	return taints{
		byNode: map[string]map[string]*sliceObject{},
		nodes:  map[string]string{},
	}
}

// set replaces a slice, and forgets it if it has no tainted device. It reports whether tainted
// devices were or are known for its node. If there are too many, set forgets and returns a slice of
// the node that has the most, because one node must not displace the devices of other nodes.
func (t *taints) set(o *sliceObject) (isChanged bool, forgotten *sliceObject) {
	before := len(t.byNode[o.node])
	t.forget(o.name)
	// A driver replaces the slices of a pool one by one. A device may be in two of them until then,
	// and only the slices of the latest generation count.
	for name, other := range t.byNode[o.node] {
		isSamePool := other.driver == o.driver && other.pool == o.pool
		if isSamePool && other.generation < o.generation {
			t.forget(name)
		}
	}
	if len(o.tainted) == 0 {
		return before > 0, nil
	}
	if t.byNode[o.node] == nil {
		t.byNode[o.node] = map[string]*sliceObject{}
	}
	t.byNode[o.node][o.name] = o
	t.nodes[o.name] = o.node
	t.devices += len(o.tainted)
	if t.devices > maxRemembered {
		forgotten = t.excess()
		t.forget(forgotten.name)
	}
	return true, forgotten
}

// forget forgets a slice, if it is known.
func (t *taints) forget(name string) {
	node := t.nodes[name]
	known := t.byNode[node][name]
	if known == nil {
		return
	}
	t.devices -= len(known.tainted)
	delete(t.nodes, name)
	delete(t.byNode[node], name)
	if len(t.byNode[node]) == 0 {
		delete(t.byNode, node)
	}
}

// excess returns a slice of the node that has the most tainted devices; of its slices, the last one
// by name, so that the same slices stay.
func (t *taints) excess() *sliceObject {
	var last *sliceObject
	most := 0
	for _, known := range t.byNode {
		count := 0
		for _, o := range known {
			count += len(o.tainted)
		}
		if count < most {
			continue
		}
		most = count
		last = nil
		for _, o := range known {
			if last == nil || o.name > last.name {
				last = o
			}
		}
	}
	return last
}

// of returns why a device of a node must lose its pod, as a taint, or an empty string if it need
// not.
func (t *taints) of(node string, d allocated) (taint string) {
	for _, o := range t.byNode[node] {
		if o.driver == d.driver && o.pool == d.pool && o.tainted[d.device] != "" {
			return o.tainted[d.device]
		}
	}
	return ""
}
