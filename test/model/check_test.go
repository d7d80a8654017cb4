package model

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type kubeletDevice = v1beta1.Device

// tick is the interval at which the program's progress is read.
const tick = 20 * time.Millisecond

// settle waits until every rule holds. Since the machine may be busy, it counts only the time
// in which the program neither ran nor was runnable.
func (w *world) settle() *violation {
	budget := time.Second
	// No event announces free space on a disk. It is looked for after ten seconds, and later once a minute.
	switch {
	case w.truth.diskHealed && *waits:
		budget += time.Minute
	case w.truth.diskHealed:
		budget += 11 * time.Second
	}
	budget += min(5*time.Second, 10*time.Millisecond<<min(w.truth.streamEnds, 9)) // backoff of registrations
	if w.truth.streamCut {
		budget += 5 * time.Second // timeout of a stream, which the kubelet may end before it is open
	}
	idle := time.Duration(0)
	deadline := time.Now().Add(timeout + budget)
	for {
		changed := w.kubelet.Changed()
		if v := w.always(); v != nil {
			return v
		}
		rule, err := w.eventually()
		if err == nil {
			break
		}
		if w.program == nil {
			return &violation{rule: rule, what: err.Error()}
		}
		began, before := time.Now(), w.program.progress() // after the checks, which call the program
		select {
		case <-changed:
		case <-w.program.ended:
		case <-time.After(tick):
		}
		if w.program.progress()-before < idleNoise {
			idle += min(tick, time.Since(began))
		}
		if idle > budget || time.Now().After(deadline) {
			return &violation{rule: rule, what: fmt.Sprintf("%v, after %s without progress", err, idle.Round(tick))}
		}
	}
	if w.program == nil {
		return nil
	}
	if err := w.checkLeaks(); err != nil {
		return &violation{rule: "leak", what: err.Error()}
	}
	w.recordSettled()
	if err := w.checkContainers(); err != nil {
		return &violation{rule: "containers", what: err.Error()}
	}
	return nil
}

// always checks the rules that hold at every moment.
func (w *world) always() *violation {
	if w.program != nil {
		select {
		case <-w.program.ended:
			if w.faulty["run"] == "" && w.faulty["cdi"] == "" {
				return &violation{rule: "alive", what: fmt.Sprintf("the program ended: %v", w.program.err)}
			}
			w.program = nil // it can't start without these directories
		default:
		}
	}
	if err := w.checkLists(); err != nil {
		return &violation{rule: "list", what: err.Error()}
	}
	if err := w.checkOrder(); err != nil {
		return &violation{rule: "order", what: err.Error()}
	}
	return nil
}

// eventually checks the rules that hold once the program has handled every event.
func (w *world) eventually() (rule string, err error) {
	if w.program == nil {
		return "", nil
	}
	for _, c := range []struct {
		rule    string
		check   func() error
		kubelet bool // only while the kubelet runs
	}{
		{"allocatable", w.checkAllocatable, true}, {"sockets", w.checkSockets, true}, {"injection", w.checkInjection, false},
		{"held", w.checkHeld, true}, {"state", w.checkState, true}, {"allocate", w.checkAllocate, true},
	} {
		if c.kubelet && !w.kubeletUp {
			continue
		}
		if err := c.check(); err != nil {
			return c.rule, err
		}
	}
	return "", nil
}

// target is a node to which a link or a CDI entry of a device leads.
type target struct{ id, node, by string }

// injected returns the targets of links and CDI entries on disk, and unexpected files.
func (w *world) injected() (list []target, unexpected []string) {
	links := filepath.Join(w.dir, "run/links")
	paths, _ := filepath.Glob(links + "/*/*")
	hidden, _ := filepath.Glob(links + "/*/.*")
	for _, path := range append(paths, hidden...) {
		to, err := os.Readlink(path)
		if err != nil {
			continue // removed meanwhile
		}
		node, ok := strings.CutPrefix(to, "/dev/")
		if !ok || strings.HasPrefix(filepath.Base(path), ".") {
			unexpected = append(unexpected, path+" -> "+to)
			continue
		}
		list = append(list, target{filepath.Base(filepath.Dir(path)), node, path})
	}
	specs, _ := os.ReadDir(filepath.Join(w.dir, "cdi"))
	for _, e := range specs {
		path := filepath.Join(w.dir, "cdi", e.Name())
		if e.IsDir() {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var spec struct {
			Kind    string
			Devices []struct {
				Name           string
				ContainerEdits struct {
					DeviceNodes []struct{ Path, HostPath string }
				}
			}
		}
		if filepath.Ext(path) != ".json" || json.Unmarshal(text, &spec) != nil {
			unexpected = append(unexpected, path)
			continue
		}
		for _, d := range spec.Devices {
			for _, n := range d.ContainerEdits.DeviceNodes {
				host := n.HostPath
				if host == "" {
					host = n.Path
				}
				list = append(list, target{d.Name, strings.TrimPrefix(host, "/dev/"), spec.Kind + "=" + d.Name})
			}
		}
	}
	return list, unexpected
}

// checkInjection checks that every link and CDI entry leads to its own device.
func (w *world) checkInjection() error {
	list, unexpected := w.injected()
	if len(unexpected) > 0 && len(w.faulty) == 0 {
		return fmt.Errorf("unexpected links or CDI specs: %v", unexpected)
	}
	for _, t := range list {
		thing := w.hw.owner[t.node]
		switch {
		case thing == "":
			return fmt.Errorf("%s leads to %s, which is gone", t.by, t.node)
		case !slices.Contains(w.formerIDs(thing), t.id):
			return fmt.Errorf("%s leads to %s, which belongs to %s (%v)", t.by, t.node, thing, w.ids(thing))
		}
	}
	return nil
}

// checkOrder checks that links and CDI entries to a node are removed before a list shows the
// node's next owner. It applies after a single change only: a list does not say which of
// several it shows.
func (w *world) checkOrder() error {
	if w.program == nil || !w.kubeletUp || w.truth.plugs != 1 {
		return nil
	}
	for name := range w.truth.names {
		slots, err := w.healthy(name)
		if err != nil {
			return nil // the list is changing
		}
		for _, slot := range slots {
			id := base(slot)
			if w.truth.healthyBefore[id] {
				continue
			}
			list, _ := w.injected()
			for _, t := range list {
				thing := w.hw.owner[t.node]
				if thing != "" && slices.Contains(w.ids(thing), id) && !slices.Contains(w.formerIDs(thing), t.id) {
					return fmt.Errorf("%s is listed as Healthy while %s of another device still leads to its node %s", id, t.by, t.node)
				}
			}
		}
	}
	return nil
}

// checkAllocate checks that Allocate of a slot of every healthy device names the nodes of
// that device, and that Allocate of an unhealthy slot fails.
func (w *world) checkAllocate() error {
	for name := range w.truth.names {
		slots, err := w.healthy(name)
		if err != nil {
			return err
		}
		for _, slot := range slots {
			if slot != base(slot) {
				continue
			}
			if err := w.allocateSlot(name, slot); err != nil && !w.isOwnGrant(err, slot) {
				return fmt.Errorf("%s: %s: %w", name, slot, err)
			}
		}
		if list, _ := w.kubelet.Latest(name); len(slots) > 0 {
			for _, slot := range list.Unhealthy() {
				if w.allocateSlot(name, slot) == nil {
					return fmt.Errorf("%s: Allocate of %s, which is Unhealthy, has no error", name, slot)
				}
			}
		}
	}
	return nil
}

// heldAs is the other ID in the error of an Allocate call for a device that a container has by that ID.
var heldAs = regexp.MustCompile(`: held as (\S+) through `)

// isOwnGrant reports whether an earlier call of this check has the device by another ID: for a minute, it
// counts as held. An edit of the identity, or a loss of the state, gives it another ID at once.
func (w *world) isOwnGrant(err error, id string) bool {
	other := heldAs.FindStringSubmatch(err.Error())
	return other != nil && slices.ContainsFunc(thingNames, func(thing string) bool {
		if w.hw.at[thing].dir == "" {
			return false
		}
		isFormer := other[1] == serialID(thing) || strings.HasPrefix(other[1], "usb:"+things[thing].usb+":port:")
		return isFormer && slices.Contains(w.formerIDs(thing), id)
	})
}

// checkState checks that the state on disk has every device that the kubelet knows: without
// it, a restart would leave listed devices out.
func (w *world) checkState() error {
	if w.faulty["state"] != "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(w.dir, "state/state.json"))
	for _, name := range w.kubelet.Resources() {
		slots, _ := w.healthy(name)
		for _, slot := range slots {
			if id := base(slot); err == nil && !strings.Contains(string(text), strconv.Quote(id)) {
				err = fmt.Errorf("state.json lacks %s of %s", id, name)
			}
		}
	}
	return err
}

// allocateSlot checks that Allocate of a slot names the nodes of the slot's device.
func (w *world) allocateSlot(name, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	answer, err := w.kubelet.Allocate(ctx, name, id)
	if err != nil {
		return err
	}
	var nodes []string
	for _, c := range answer.ContainerResponses {
		for _, d := range c.Devices {
			path := d.HostPath
			if to, err := os.Readlink(path); err == nil {
				path = to
			} else if strings.HasPrefix(path, w.dir) {
				return err
			}
			nodes = append(nodes, strings.TrimPrefix(path, "/dev/"))
		}
		for _, d := range c.CdiDevices {
			list, _ := w.injected()
			for _, t := range list {
				if t.by == d.Name {
					nodes = append(nodes, t.node)
				}
			}
		}
	}
	thing := ""
	for _, node := range nodes {
		owner := w.hw.owner[node]
		if owner == "" || !slices.Contains(w.ids(owner), id) {
			return fmt.Errorf("Allocate names nodes %v, of which %s belongs to %q", nodes, node, owner)
		}
		thing = owner
	}
	if len(nodes) != things[thing].nodes {
		return fmt.Errorf("Allocate names nodes %v of %q, want %d", nodes, thing, things[thing].nodes)
	}
	return nil
}

// checkContainers checks that a restarted container finds its device, unless that has moved.
func (w *world) checkContainers() error {
	if w.truth.stateLost || len(w.faulty) > 0 || w.configUncertain() {
		return nil
	}
	for _, c := range w.claims {
		p := w.hw.at[c.thing]
		if c.path == "" || !c.sure || w.hw.moves[c.thing] != c.moves || p.dir == "" {
			continue
		}
		to, err := os.Readlink(c.path)
		if err != nil {
			return fmt.Errorf("%s holds %s by the link %s, and the device has not moved: %w", c.Pod, c.thing, c.path, err)
		}
		if !slices.Contains(p.nodes, strings.TrimPrefix(to, "/dev/")) {
			return fmt.Errorf("%s holds %s by the link %s, which leads to %s, want one of %v", c.Pod, c.thing, c.path, to, p.nodes)
		}
	}
	return nil
}

// checkSockets checks that each registered resource has one socket, and that no other is left.
func (w *world) checkSockets() error {
	connected := map[string]bool{}
	for _, name := range w.kubelet.Resources() {
		sockets := w.kubelet.Connected(name)
		if len(sockets) > 1 {
			return fmt.Errorf("%s is connected by %d sockets, want 1: %v", name, len(sockets), sockets)
		}
		for _, s := range sockets {
			connected[s] = true
		}
	}
	for _, s := range w.sockets() {
		if !connected[s] && !w.orphans[s] {
			return fmt.Errorf("socket %s is left behind: no resource is connected by it", s)
		}
	}
	return nil
}

// checkLeaks checks the bounds of open files, memory and files of the state.
func (w *world) checkLeaks() error {
	if n := w.program.files(); n > 60 {
		return fmt.Errorf("%d open files, want at most 60", n)
	}
	if n := w.program.resident(); n > 64 {
		return fmt.Errorf("%d MiB resident, want at most 64", n)
	}
	known := []string{"state.json", "last-good-config.json", "config-trial.json", ".filler"}
	entries, err := os.ReadDir(filepath.Join(w.dir, "state"))
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) && w.faulty["state"] == "" && !strings.HasSuffix(e.Name(), ".tmp") {
			return fmt.Errorf("state/%s is left behind", e.Name())
		}
	}
	return err
}
