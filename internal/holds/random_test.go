package holds_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
	"github.com/generic-dp/generic-dp/internal/host/cgroup"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// pod is a pod that got a device.
type pod struct {
	uid string
	of  offer
	// slot is the ID of its slot, empty for a claim.
	slot string
	// runs is set while a process exists, and hasCgroup while its cgroup does.
	runs, hasCgroup bool
	// isDeleted is set once no container of it is started again.
	isDeleted bool
	// ran is set once a process has existed, and isReleased once the claim was unprepared.
	ran, isReleased bool
}

// world is a host with a kubelet, and the truth about its pods.
type world struct {
	*testing.T
	rnd     *rand.Rand
	dir     string
	boot    int
	cgroups *kubelettest.Cgroups
	all     []*hardware
	// edit is the configuration that is served.
	edit int
	pods []*pod
	// memory is what the kubelet believes, by slot, and knowsPods is set once it has the list of the
	// API server.
	memory    map[string]*pod
	knowsPods bool
	// checkpoints are all that were written, the last one is on disk.
	checkpoints []map[string]*pod
	book        *holds.Book
	// isTakingOver is set while the book is the one of a successor that does not answer yet.
	isTakingOver bool
	listed       []offer
	// remembered is what the program knows across boots about the devices that it has listed.
	remembered map[string]holds.Device
	next       int
	// isOutdated is set if the book has not looked at the pods since the last checkpoint.
	isOutdated bool
	steps      []string
}

// say records a step for the message of a failure.
func (w *world) say(format string, args ...any) {
	format = time.Now().Format("04:05 ") + format
	w.steps = append(w.steps, fmt.Sprintf(format, args...))
}

// newBook starts the program. mayWrite is set if no other instance answers.
func (w *world) newBook(mayWrite bool) *holds.Book {
	b := holds.New(holds.Options{
		Checkpoint: filepath.Join(w.dir, "checkpoint"),
		Cgroups:    cgroup.New(w.cgroups.Dir()),
		Journal:    filepath.Join(w.dir, "holds"),
		Boot:       fmt.Sprint(w.boot),
		Now:        time.Now,
		Listed: func(context.Context) (map[string]string, error) {
			w.prune()
			return nil, nil
		},
		ListAgain:  func() { w.writeCheckpoint() },
		Pods:       func(context.Context) (map[string]bool, error) { return nil, nil },
		Generation: func() uint64 { return 1 },
		Changed:    func() {},
		Log:        slog.New(slog.DiscardHandler),
	})
	b.Load(w.Context(), mayWrite)
	for _, p := range w.pods {
		if p.slot == "" && (!p.isDeleted || p.runs || !p.isReleased) {
			b.Record(p.uid, p.of.recorded())
		}
	}
	return b
}

// offers are what the configuration offers now. Each edit offers the hardware in another way.
func (w *world) offers() []offer {
	var all []offer
	add := func(h *hardware, resource string, byPort, shared, exclusive bool) {
		id := h.id(byPort)
		if shared {
			name, _ := device.SplitResourceKey(resource)
			id = strings.ReplaceAll(name, "/", "-") + ":" + id
		}
		all = append(all, offer{h, h.identity(), holds.Wanted{
			ID:       id,
			Resource: resource,
			Slots:    1,
			Device:   holds.Device{Places: h.places(), Shared: shared, Exclusive: exclusive},
		}})
	}
	for _, h := range w.all {
		if h.isUSB() && h.port == "" {
			continue
		}
		if !h.isUSB() {
			isClaimed := w.edit%2 == 0 && h.whole == nil // the physical function by the other API
			add(h, device.ResourceKey("x/function", isClaimed), false, false, true)
			continue
		}
		switch w.edit {
		case 0:
			add(h, "x/a", false, false, false)
		case 1:
			add(h, "x/b", false, false, false)
		case 2:
			add(h, device.ResourceKey("x/a", true), false, false, false)
		case 3:
			add(h, "x/a", true, false, false)
		case 4: // both at once
			add(h, "x/a", false, true, false)
			add(h, "x/c", false, true, false)
		case 5: // the same resource by the other API, under another ID
			add(h, device.ResourceKey("x/a", true), true, true, false)
			add(h, "x/c", false, true, false)
		}
	}
	return all
}

// pass is what a pass of the loop does with the book.
func (w *world) pass() {
	offered := map[string]holds.Device{}
	for _, o := range w.offers() {
		offered[o.want.ID] = o.want.Device
		w.remembered[o.want.ID] = o.want.Device
	}
	plugged := map[string][]string{}
	for _, h := range w.all {
		if h.isUSB() && h.port != "" {
			plugged["usb1/"+h.port] = h.places()
		}
	}
	for id, d := range w.remembered {
		if _, isOffered := offered[id]; !isOffered {
			d = d.NotOffered(plugged)
			w.remembered[id] = d
		}
	}
	w.book.Observe(w.Context(), offered, w.remembered, plugged, func(name string) bool { return strings.HasPrefix(name, "x/") })
	w.book.Save() // Run does so at once
	view := w.book.View()
	w.listed = nil
	for _, o := range w.offers() {
		reason := view.Blocked(o.want)
		if reason == "" {
			w.mustNotBeClaimed(o)
			w.listed = append(w.listed, o)
			continue
		}
		hasRival := slices.ContainsFunc(w.pods, func(p *pod) bool {
			isInPort := o.hw.serial == "" && p.of.hw == o.hw && slices.Equal(p.of.want.Places, o.want.Places)
			return p.of.conflicts(&o) || isInPort
		})
		if !hasRival {
			w.Fatalf("%s of %s is withheld, and nobody ever had it: %s; steps:\n%s", o.want.ID, o.want.Resource, reason, strings.Join(w.steps, "\n"))
		}
	}
	w.book.Await(len(w.listed) < len(w.offers()))
}

// lives reports whether a pod may use its device, now or when its next container starts.
func (w *world) lives(p *pod) bool {
	if p.runs {
		return true
	}
	if p.isDeleted {
		return false
	}
	if p.slot == "" {
		return true
	}
	onDisk := w.checkpoints[len(w.checkpoints)-1]
	return w.memory[p.slot] == p || onDisk[p.slot] == p
}

// admit has a pod get an offer from the list, which may be out of date.
func (w *world) admit() {
	if len(w.listed) == 0 {
		return
	}
	o := w.listed[w.rnd.IntN(len(w.listed))]
	w.next++
	p := &pod{uid: fmt.Sprintf("00000000-0000-4000-8000-%012d", w.next), of: o}
	_, byDRA := device.SplitResourceKey(o.want.Resource)
	if o.hw.identity() != o.identity || o.hw.isUSB() && o.hw.port == "" {
		return // it is gone from the list, or Unhealthy
	}
	if byDRA {
		w.prepare(p)
		return
	}
	w.prune()
	if w.memory[o.want.ID] != nil {
		return // the kubelet knows that the slot is not free
	}
	p.slot = o.want.ID
	if _, err := w.book.Grant(w.Context(), []holds.Wanted{o.want}, []string{p.slot}); err != nil {
		w.say("refused %s through %s: %v", p.slot, o.want.Resource, err)
		return
	}
	w.say("pod %d gets %s (%s) through %s", w.next, p.slot, o.hw.name, o.want.Resource)
	w.mustBeFree(p)
	w.pods = append(w.pods, p)
	w.memory[p.slot] = p
	if w.rnd.IntN(4) > 0 {
		w.writeCheckpoint()
	}
}

// prepare has a claim of a pod get an offer. The scheduler knows the other claims only.
func (w *world) prepare(p *pod) {
	for _, other := range w.pods {
		isClaim := other.slot == ""
		if isClaim && !other.isReleased && other.of.want.ID == p.of.want.ID {
			return
		}
	}
	conflicts, err := w.book.Reserve(p.uid, []holds.Wanted{p.of.want})
	if err != nil || len(conflicts) > 0 {
		w.say("claim %d does not get %s", w.next, p.of.want.ID)
		return
	}
	w.say("claim %d gets %s (%s) through %s", w.next, p.of.want.ID, p.of.hw.name, p.of.want.Resource)
	w.mustBeFree(p)
	w.pods = append(w.pods, p)
}

// mustBeFree fails the test if a pod that lives has the hardware of another one.
func (w *world) mustBeFree(p *pod) {
	for _, other := range w.pods {
		if w.lives(other) && p.of.conflicts(&other.of) {
			w.Fatalf("%s got %s while %s has it as %s through %s; steps:\n%s", p.uid, p.of.hw.name,
				other.uid, other.of.want.ID, other.of.want.Resource, strings.Join(w.steps, "\n"))
		}
	}
}

// mustNotBeClaimed fails the test if a device plugin offers the hardware of a claim that lives.
func (w *world) mustNotBeClaimed(o offer) {
	_, byDRA := device.SplitResourceKey(o.want.Resource)
	for _, p := range w.pods {
		isClaim := p.slot == ""
		if isClaim && !byDRA && !w.isTakingOver && w.lives(p) && p.of.conflicts(&o) {
			w.Fatalf("%s of %s is offered while claim %s has it as %s; steps:\n%s",
				o.want.ID, o.want.Resource, p.uid, p.of.want.ID, strings.Join(w.steps, "\n"))
		}
	}
}

// prune has the kubelet forget the pods that are not active. It does so with each query, if it knows the
// pods of the API server.
func (w *world) prune() {
	if !w.knowsPods {
		return
	}
	for slot, p := range w.memory {
		if p.isDeleted {
			delete(w.memory, slot)
		}
	}
}

// writeCheckpoint has the kubelet write its checkpoint.
func (w *world) writeCheckpoint() {
	copied := map[string]*pod{}
	for slot, p := range w.memory {
		copied[slot] = p
	}
	w.checkpoints = append(w.checkpoints, copied)
	w.store(copied)
}

// store replaces the checkpoint on disk.
func (w *world) store(content map[string]*pod) {
	type line struct {
		PodUID, ResourceName string
		DeviceIDs            map[string][]string
	}
	lines := []line{}
	for slot, p := range content {
		lines = append(lines, line{p.uid, p.of.want.Resource, map[string][]string{"-1": {slot}}})
	}
	text, err := json.Marshal(map[string]any{"Data": map[string]any{"PodDeviceEntries": lines}})
	path := filepath.Join(w.dir, "checkpoint")
	if err == nil {
		err = os.WriteFile(path+".next", text, 0o600)
	}
	if err == nil {
		err = os.Rename(path+".next", path)
	}
	if err != nil {
		w.Fatal(err)
	}
	if w.book != nil {
		w.book.ReadCheckpoint(w.Context())
		w.isOutdated = true
	}
}

// any returns a pod for which a condition holds, nil if there is none.
func (w *world) any(holds func(*pod) bool) *pod {
	for _, i := range w.rnd.Perm(len(w.pods)) {
		if holds(w.pods[i]) {
			return w.pods[i]
		}
	}
	return nil
}

// start starts a container of a pod, or makes its cgroup.
func (w *world) start() {
	p := w.any(func(p *pod) bool {
		isPrepared := p.slot == "" && !p.isReleased
		return !p.isDeleted && !p.runs && (isPrepared || w.memory[p.slot] == p)
	})
	if p == nil {
		return
	}
	onDisk := w.checkpoints[len(w.checkpoints)-1]
	if p.slot != "" && onDisk[p.slot] != p {
		w.writeCheckpoint() // a pod is admitted after that
	}
	p.hasCgroup = true
	if w.rnd.IntN(3) == 0 {
		w.cgroups.Wait(p.uid)
		w.say("%s waits for a volume", p.uid)
		return
	}
	p.runs = true
	p.ran = true
	w.cgroups.Start(p.uid)
	w.say("%s runs", p.uid)
}

// crash ends the processes of a pod, which is in back-off then.
func (w *world) crash() {
	if p := w.any(func(p *pod) bool { return p.runs && !p.isDeleted }); p != nil {
		p.runs = false
		w.cgroups.Wait(p.uid)
		w.say("%s is in back-off", p.uid)
	}
}

// finish ends a pod. With force, the kubelet forgets it while its processes run.
func (w *world) finish() {
	p := w.any(func(p *pod) bool { return !p.isDeleted })
	if p == nil {
		return
	}
	p.isDeleted = true
	isForced := p.runs && w.rnd.IntN(2) == 0
	w.say("%s is deleted, with force: %t", p.uid, isForced)
	if !isForced {
		w.exit(p)
	}
	if p.slot == "" {
		p.isReleased = true // the kubelet unprepares it, whether processes run or not
		w.endClaims()
	}
}

// exit ends everything of a pod.
func (w *world) exit(p *pod) {
	p.runs = false
	p.hasCgroup = false
	w.cgroups.End(p.uid)
}

// endClaims removes the claims that have ended, as the driver does.
func (w *world) endClaims() {
	for _, p := range w.pods {
		if p.slot != "" {
			continue
		}
		state := cgroup.Ended
		if p.runs {
			state = cgroup.Running
		}
		e := holds.ClaimEvidence{Pods: state, HaveRun: p.ran, IsReleased: p.isReleased}
		if e.Hold() == nil {
			w.book.Release(p.uid)
		}
	}
}

// unplug moves USB hardware to another port, or away, or plugs it in.
func (w *world) unplug() {
	h := w.all[w.rnd.IntN(len(w.all))]
	if !h.isUSB() {
		return
	}
	h.port = ""
	w.pass() // a removal is noticed before the next device is plugged in
	if w.rnd.IntN(3) > 0 {
		port := fmt.Sprintf("1-%d", 1+w.rnd.IntN(3))
		isTaken := slices.ContainsFunc(w.all, func(other *hardware) bool { return other.port == port })
		if !isTaken {
			h.port = port
			h.plugged++
		}
	}
	w.say("%s is in port %q", h.name, h.port)
}

// restartKubelet restarts the kubelet, sometimes with an older checkpoint or none.
func (w *world) restartKubelet() {
	onDisk := w.checkpoints[len(w.checkpoints)-1]
	switch w.rnd.IntN(4) {
	case 0:
		onDisk = map[string]*pod{}
	case 1:
		onDisk = w.checkpoints[w.rnd.IntN(len(w.checkpoints))]
	}
	w.memory = map[string]*pod{}
	for slot, p := range onDisk {
		w.memory[slot] = p
	}
	w.knowsPods = false
	w.say("the kubelet restarts with %d slots", len(w.memory))
	w.writeCheckpoint()
}

// reboot ends all processes. The kubelet restores its pods from the checkpoint, without Allocate.
func (w *world) reboot() {
	w.boot++
	onDisk := w.checkpoints[len(w.checkpoints)-1]
	w.memory = map[string]*pod{}
	for _, p := range w.pods {
		w.exit(p)
		isRestored := p.slot != "" && onDisk[p.slot] == p
		if isRestored {
			w.memory[p.slot] = p
		} else if p.slot != "" {
			p.isDeleted = true
		}
	}
	w.knowsPods = false
	w.say("reboot with %d slots", len(w.memory))
	w.book = w.newBook(true)
	w.endClaims()
}

// handOver has another instance of the program take over. It passes while the first one still answers.
func (w *world) handOver() {
	first := w.book
	second := w.newBook(false)
	w.say("another instance takes over")
	w.admit()
	w.book = second
	w.isTakingOver = true
	w.pass()
	w.isTakingOver = false
	w.book = first
	w.admit()
	first.Retire()
	w.book = second
	second.Look(w.Context())
	second.Load(w.Context(), true) // it answers from now on
	for _, p := range w.pods {
		if p.slot == "" {
			second.Record(p.uid, p.of.recorded())
		}
	}
	w.endClaims()
	w.admit()
	first.ReadCheckpoint(w.Context()) // its streams have not ended
}

// step does something at random.
func (w *world) step() {
	steps := []func(){
		w.admit, w.admit, w.admit, w.admit, w.start, w.start, w.start, w.crash, w.finish, w.finish,
		w.unplug, w.unplug, w.pass, w.pass, w.pass, w.endClaims,
		func() {
			w.edit = w.rnd.IntN(6)
			w.say("edit %d", w.edit)
			if w.rnd.IntN(3) > 0 {
				w.pass()
			}
		},
		func() {
			w.writeCheckpoint() // the kubelet does so within the call in which it admits a pod
			time.Sleep(time.Duration(w.rnd.IntN(90)) * time.Second)
		},
		func() { w.say("look"); w.book.Look(w.Context()) },
		func() { w.writeCheckpoint() },
		func() { w.knowsPods = true },
		func() {
			if w.rnd.IntN(4) == 0 {
				w.restartKubelet()
			}
		},
		func() {
			if w.rnd.IntN(8) == 0 {
				w.reboot()
				w.pass()
			}
		},
		func() {
			if w.rnd.IntN(3) == 0 {
				w.say("the program restarts")
				w.book = w.newBook(true)
				w.pass()
			}
		},
		w.handOver,
		func() { // a process that hung ends
			if p := w.any(func(p *pod) bool { return p.runs && p.isDeleted }); p != nil {
				w.exit(p)
				w.say("%s has ended", p.uid)
				w.endClaims()
			}
		},
	}
	steps[w.rnd.IntN(len(steps))]()
	if w.isOutdated && w.rnd.IntN(2) == 0 {
		w.isOutdated = false
		w.book.Look(w.Context())
	}
}

// settle ends all pods. Then nothing may be withheld for long.
func (w *world) settle() {
	for _, p := range w.pods {
		p.isDeleted = true
		p.isReleased = true
		w.exit(p)
	}
	w.endClaims()
	w.knowsPods = true
	for range 20 {
		w.pass()
		w.book.Look(w.Context())
		time.Sleep(10 * time.Second)
	}
	w.pass()
	for _, o := range w.offers() {
		if reason := w.book.View().Blocked(o.want); reason != "" {
			w.Fatalf("%s of %s stays withheld: %s; steps:\n%s", o.want.ID, o.want.Resource, reason, strings.Join(w.steps, "\n"))
		}
	}
}

// No device ever has two holders, and nothing is withheld for ever, whatever happens to pods, the
// kubelet, the program, the configuration and the hardware.
func TestRandomEvents(t *testing.T) {
	t.Parallel()
	seeds := 60
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			cgroups := kubelettest.NewCgroups(t)
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				w := &world{T: t, rnd: rand.New(rand.NewPCG(uint64(seed), 1)), dir: dir, cgroups: cgroups, memory: map[string]*pod{}, remembered: map[string]holds.Device{}}
				pf := &hardware{name: "0000:3b:00.0"}
				w.all = []*hardware{
					{name: "dongle", port: "1-1"}, {name: "camera", port: "1-2"}, {name: "zigbee", port: "1-3", serial: "A1"},
					{name: "modem", serial: "B2"},
					pf, {name: "0000:3b:02.0", whole: pf}, {name: "0000:3b:02.1", whole: pf},
				}
				w.writeCheckpoint()
				w.book = w.newBook(true)
				w.pass()
				for range 300 {
					w.step()
				}
				w.settle()
			})
		})
	}
}
