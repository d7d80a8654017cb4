package agent

import (
	"context"
	"path/filepath"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/matchers"
)

// holdsName is the file in the run directory that keeps holds over a restart.
const holdsName = "holds"

// newBook returns the book of who holds which device. Its functions are called in goroutines of the
// book and of Allocate: they only read what the loop has published.
func (a *Agent) newBook() *holds.Book {
	o := holds.Options{
		Checkpoint: filepath.Join(a.options.Paths.KubeletDir, holds.CheckpointName),
		Cgroups:    a.pods.cgroups,
		Journal:    filepath.Join(a.options.Paths.RunDir, holdsName),
		Boot:       bootID(),
		Now:        a.now,
		Listed:     a.listHeld,
		ListAgain:  a.listAgain,
		Pods:       a.pods.client.Pods,
		Generation: func() uint64 {
			kubelet, _ := a.kubelet.Kubelet()
			return kubelet.Generation
		},
		Changed: a.holdsChanged.send,
		NewPods: func() {
			a.dra.plugin.NewPods()
		},
		CgroupHint: hints["cgroup"],
		Log:        a.log,
	}
	return holds.New(o)
}

// listHeld queries the kubelet for the held slots and the names of their pods, "NAMESPACE/NAME". If
// several containers hold a slot, one of their pods is named. The driver removes the claims that have ended,
// of which the kubelet may have lost its state.
func (a *Agent) listHeld(ctx context.Context) (map[string]string, error) {
	list, err := a.pods.client.Holders(ctx, a.now())
	if err != nil {
		return nil, err
	}
	a.dra.plugin.Sweep(lists(list[dra.Driver]))
	held := map[string]string{}
	for _, ids := range list {
		for id, holders := range ids {
			held[id] = holders[0].Namespace + "/" + holders[0].Pod
		}
	}
	return held, nil
}

// listAgain sends the list of one resource to the kubelet again.
func (a *Agent) listAgain() {
	for _, r := range a.members() {
		if r.plugin != nil && r.plugin.Status().Registered {
			r.plugin.ListAgain()
			return
		}
	}
}

// loadHolds reads the holds of earlier instances, and the claims that they have prepared. The files of
// claims are ours, so that they are known without the kubelet. mayAnswer is set if no other instance answers.
func (a *Agent) loadHolds(ctx context.Context, mayAnswer bool) {
	if a.options.hasKubelet() {
		a.book.Load(ctx, mayAnswer)
		a.dra.plugin.Load()
	}
}

// observe tells the book what the devices of this pass use of the host, and returns who holds them.
func (l *loop) observe(ctx context.Context, v *View) *holds.View {
	if !l.options.hasKubelet() {
		return &holds.View{} // nobody knows the holders, and nobody waits for them
	}
	offered := map[string]holds.Device{}
	for _, m := range v.Matched.Resources {
		for i := range m.Offers {
			offered[m.Offers[i].ID] = holds.DeviceOf(&m.Offers[i])
		}
	}
	l.book.Observe(ctx, offered, l.remembered(), plugged(v), l.ours())
	return l.book.View()
}

// remembered is what the devices use that the ledger lists, also from before a reboot.
func (l *loop) remembered() map[string]holds.Device {
	all := map[string]holds.Device{}
	for id, places := range l.memory.state.Places() {
		all[id] = holds.Device{Places: places}
	}
	return all
}

// plugged has the names of the USB devices of the host by their ports.
func plugged(v *View) map[string][]string {
	ports := map[string][]string{}
	for _, h := range v.Snapshot.Hardware {
		port := device.PortOf(h.Path)
		if port == "" || h.USB == nil {
			continue
		}
		ports[port] = device.USBNames(h)
	}
	for _, u := range v.Snapshot.UnreadHardware {
		if port := device.PortOf(u.Path); port != "" {
			ports[port] = nil // it is not known which device that is
		}
	}
	return ports
}

// ours returns a function that reports whether a resource is, or may be, this program's: it is listed,
// or the configuration can make its name. It keeps the present configuration, which never changes.
func (l *loop) ours() func(key string) bool {
	listed := map[string]bool{}
	for _, key := range l.memory.state.Names() {
		name, _ := device.SplitResourceKey(key)
		listed[name] = true
	}
	cfg := l.config
	for i := range cfg.Resources {
		listed[cfg.Resources[i].Name] = true
	}
	return func(key string) bool {
		name, _ := device.SplitResourceKey(key)
		if listed[name] {
			return true
		}
		for i := range cfg.Resources {
			if matchers.Makes(&cfg.Resources[i], name) {
				return true
			}
		}
		return false
	}
}

// heldSlots are the held slots for the ledger.
func heldSlots(view *holds.View) ledger.Held {
	held := ledger.Held{
		IsUnknown: view.Unread() != "",
		Slots:     map[string][]ledger.HeldSlot{},
	}
	for _, id := range view.HeldIDs() {
		for _, h := range view.Slots(id) {
			held.Slots[id] = append(held.Slots[id], ledger.HeldSlot{Number: h.Slot, Resource: h.Resource})
		}
	}
	return held
}

// wanted is an offer as a container would get it through a resource.
func wanted(key string, o *device.Offer) holds.Wanted {
	return holds.Wanted{
		ID:       o.ID,
		Resource: key,
		Device:   holds.DeviceOf(o),
	}
}
