package dra

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// listSupport is what is known about an API server and attributes with lists. The zero value knows
// nothing.
//
// The fields are alpha since 1.36 (DRAListTypeAttributes). A server without the feature drops a list,
// and then refuses the slice because of an attribute without a value. But it keeps lists of a slice
// that has lists already (dropDisableDRAListTypeAttributesFields in
// pkg/registry/resource/resourceslice), and a scheduler of 1.36 without the feature allocates no
// device for a claim that such a slice is compared with. So the server is asked with a slice that does
// not exist.
type listSupport struct {
	known bool
	// problem is why lists are left out, for an administrator. It is empty if they are not.
	problem string
}

// listsNeed is what an administrator has to change if lists are left out.
const listsNeed = "attributes with several values are not published: they need Kubernetes 1.36 or later, " +
	"and the feature gate DRAListTypeAttributes in the API server and the scheduler"

// refuse records that the API server accepts no lists, and what an administrator has to change.
func (l *listSupport) refuse(problem string) {
	l.known = true
	l.problem = problem
}

// publishable returns the devices with attributes that the API server accepts: without lists if it
// does not know them. The error is one of a request.
func (p *Plugin) publishable(ctx context.Context, devices []Device) ([]Device, error) {
	if !haveLists(devices) {
		p.slices.lists = listSupport{}
		return devices, nil
	}
	if err := p.slices.askForLists(ctx); err != nil {
		return nil, err
	}
	if p.slices.lists.problem == "" {
		return devices, nil
	}
	return withoutLists(devices), nil
}

// listName is the name of the device and of the attribute with which the API server is asked.
const listName = "list"

// listQuestion is a slice that is only created by dry runs. No slice of the node has its name, which
// the admission policy permits.
func (n *nodeSlices) listQuestion() slice {
	question := n.object(0, sliceSpec{
		Driver:   Driver,
		NodeName: n.name,
		Pool:     pool{Name: PoolName(n.name), Generation: 1, ResourceSliceCount: 1},
		Devices: []sliceDevice{{
			Name:       listName,
			Attributes: map[string]attribute{listName: {Ints: []int64{0}}},
		}},
	})
	question.Metadata = metadata{Name: n.name + "-" + Driver + "-" + listName}
	return question
}

// askForLists asks the API server whether it accepts lists, once in a session. It creates nothing. The
// error is one that a later attempt may not have.
func (n *nodeSlices) askForLists(ctx context.Context) error {
	if n.lists.known {
		return nil
	}
	question := n.listQuestion()
	err := n.api.Create(ctx, slicesPath+"?dryRun=All", question, nil)
	switch kubeapi.Code(err) {
	case http.StatusUnprocessableEntity, http.StatusBadRequest, http.StatusForbidden:
		problem := listsNeed
		// A webhook may be unable to answer without side effects, and a policy may not expect the
		// question. The slices themselves are written nevertheless.
		if !question.Spec.Devices[0].lacksList(err) {
			problem += ": " + err.Error()
		}
		n.lists.refuse(problem)
		return nil
	}
	n.lists.known = err == nil
	return err
}

// lacksList reports whether the API server has refused the first device of a slice because it dropped
// a list.
func (d *sliceDevice) lacksList(err error) bool {
	var answer *kubeapi.Error
	if !errors.As(err, &answer) || answer.Code != http.StatusUnprocessableEntity {
		return false
	}
	return slices.ContainsFunc(answer.Causes, func(c kubeapi.Cause) bool {
		field, isOfDevice := strings.CutPrefix(c.Field, "spec.devices[0]")
		return isOfDevice && d.hasListAt(field)
	})
}

// hasListAt reports whether a field of the device in an answer of the API server, such as
// ".attributes[ports]", is an attribute with a list.
func (d *sliceDevice) hasListAt(field string) bool {
	name, isAttribute := strings.CutPrefix(field, ".attributes[")
	name, isWhole := strings.CutSuffix(name, "]")
	a := d.Attributes[name]
	return isAttribute && isWhole && a.isList()
}

// haveLists reports whether any attribute is a list.
func haveLists(devices []Device) bool {
	for i := range devices {
		for _, v := range devices[i].Attributes {
			if v.List != nil {
				return true
			}
		}
	}
	return false
}

// withoutLists returns the devices with single values in place of lists, or without the attributes that
// have none. It does not change the attributes of the devices, which others read.
func withoutLists(devices []Device) []Device {
	for i := range devices {
		d := &devices[i]
		if !haveLists(devices[i : i+1]) {
			continue
		}
		d.Attributes = maps.Clone(d.Attributes)
		for name, v := range d.Attributes {
			v.List = nil
			d.Attributes[name] = v // an empty one is left out
		}
	}
	return devices
}

// ListProblem returns why attributes with lists are left out, and what to change. It is empty if they
// are published, or if there are none.
func (p *Plugin) ListProblem() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.listless
}
