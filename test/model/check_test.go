package model

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type kubeletDevice = v1beta1.Device

// tick is how often the program's progress is read.
const tick = 20 * time.Millisecond

// settle waits until everything holds. On a busy machine time says little: what counts
// is the time in which the program neither ran nor wanted to.
func (w *world) settle() *violation {
	budget := time.Second
	if w.truth.healed {
		budget += 11 * time.Second // nothing announces that a disk has space again
	}
	budget += min(5*time.Second, 10*time.Millisecond<<min(w.truth.ends, 9)) // backoff of registrations
	if w.truth.cut {
		budget += 5 * time.Second // how long a stream is awaited: the kubelet may end one before it is open
	}
	idle := time.Duration(0)
	deadline := time.Now().Add(patience)
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
		began, before := time.Now(), w.program.progress() // after the calls of the checks
		select {
		case <-changed:
		case <-w.program.ended:
		case <-time.After(tick):
		}
		if w.program.progress()-before < idling {
			idle += min(tick, time.Since(began))
		}
		if idle > budget || time.Now().After(deadline) {
			return &violation{rule: rule, what: fmt.Sprintf("%v, after %s without progress", err, idle.Round(tick))}
		}
	}
	if w.program == nil {
		return nil
	}
	if err := w.leaks(); err != nil {
		return &violation{rule: "leak", what: err.Error()}
	}
	w.learn()
	if err := w.containers(); err != nil {
		return &violation{rule: "containers", what: err.Error()}
	}
	return nil
}

// always holds at every moment.
func (w *world) always() *violation {
	if w.program != nil {
		select {
		case <-w.program.ended:
			if w.faulty["run"] == "" && w.faulty["cdi"] == "" {
				return &violation{rule: "alive", what: fmt.Sprintf("the program has ended: %v", w.program.err)}
			}
			w.program = nil // it can't start like that
		default:
		}
	}
	if err := w.follow(); err != nil {
		return &violation{rule: "list", what: err.Error()}
	}
	if err := w.order(); err != nil {
		return &violation{rule: "order", what: err.Error()}
	}
	return nil
}

// eventually holds when the program has done its work.
func (w *world) eventually() (rule string, err error) {
	if w.program == nil {
		return "", nil
	}
	for _, check := range []struct {
		rule    string
		of      func() error
		kubelet bool // needs one
	}{
		{"view", w.view, true}, {"sockets", w.ownSockets, true}, {"injection", w.targets, false},
		{"in use", w.inUse, true}, {"state", w.saved, true}, {"allocate", w.allocate, true},
	} {
		if check.kubelet && !w.up {
			continue
		}
		if err := check.of(); err != nil {
			return check.rule, err
		}
	}
	return "", nil
}

// target is a node to which a link or a CDI entry of a device leads.
type target struct{ id, node, by string }

// injected lists the links and CDI entries on disk.
func (w *world) injected() (list []target, strange []string) {
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
			strange = append(strange, path+" -> "+to)
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
			strange = append(strange, path)
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
	return list, strange
}

// targets checks that every link and CDI entry leads to its own device.
func (w *world) targets() error {
	list, strange := w.injected()
	if len(strange) > 0 && len(w.faulty) == 0 {
		return fmt.Errorf("left behind: %v", strange)
	}
	for _, t := range list {
		thing := w.hw.owner[t.node]
		switch {
		case thing == "":
			return fmt.Errorf("%s leads to %s, which is gone", t.by, t.node)
		case !slices.Contains(w.formerIDs(thing), t.id):
			return fmt.Errorf("%s leads to %s, which is %s (%v) now", t.by, t.node, thing, w.ids(thing))
		}
	}
	return nil
}

// order checks that what led to a node is removed before a list shows the thing that has
// the node now. After several changes at once no list says which it shows.
func (w *world) order() error {
	if w.program == nil || !w.up || w.truth.plugs != 1 {
		return nil
	}
	for name := range w.truth.names {
		slots, err := w.healthy(name)
		if err != nil {
			return nil // it is changing
		}
		for _, slot := range slots {
			id := base(slot)
			if w.truth.before[id] {
				continue
			}
			list, _ := w.injected()
			for _, t := range list {
				thing := w.hw.owner[t.node]
				if thing != "" && slices.Contains(w.ids(thing), id) && !slices.Contains(w.formerIDs(thing), t.id) {
					return fmt.Errorf("%s is listed as healthy while %s still leads to its node %s", id, t.by, t.node)
				}
			}
		}
	}
	return nil
}

// allocate asks for a slot of every healthy device: what is named exists and is that
// device.
func (w *world) allocate() error {
	for name := range w.truth.names {
		slots, err := w.healthy(name)
		if err != nil {
			return err
		}
		for _, slot := range slots {
			if slot != base(slot) {
				continue
			}
			if err := w.allocateOne(name, slot); err != nil {
				return fmt.Errorf("%s: %s: %w", name, slot, err)
			}
		}
		if list, _ := w.kubelet.Latest(name); len(slots) > 0 {
			for _, slot := range list.Unhealthy() {
				if w.allocateOne(name, slot) == nil {
					return fmt.Errorf("%s: %s is unhealthy and given away", name, slot)
				}
			}
		}
	}
	return nil
}

// saved checks that the state on disk has what the kubelet knows: a program that starts
// without it would leave devices out that were listed.
func (w *world) saved() error {
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

func (w *world) allocateOne(name, id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
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
			return fmt.Errorf("got %v, of which %s is %q", nodes, node, owner)
		}
		thing = owner
	}
	if len(nodes) != things[thing].nodes {
		return fmt.Errorf("got %v of %q, want %d nodes", nodes, thing, things[thing].nodes)
	}
	return nil
}

// containers checks that a container that starts again finds a device that has not moved.
func (w *world) containers() error {
	if w.truth.vague || len(w.faulty) > 0 || w.uncertain() {
		return nil
	}
	for _, c := range w.claims {
		p := w.hw.at[c.thing]
		if c.path == "" || !c.sure || w.hw.moves[c.thing] != c.moves || p.dir == "" {
			continue
		}
		to, err := os.Readlink(c.path)
		if err != nil {
			return fmt.Errorf("%s was given %s of %s, which has not moved: %w", c.Pod, c.path, c.thing, err)
		}
		if !slices.Contains(p.nodes, strings.TrimPrefix(to, "/dev/")) {
			return fmt.Errorf("%s was given %s of %s, which leads to %s", c.Pod, c.path, c.thing, to)
		}
	}
	return nil
}

// ownSockets checks that there is one socket for each registered resource.
func (w *world) ownSockets() error {
	connected := map[string]bool{}
	for _, name := range w.kubelet.Resources() {
		sockets := w.kubelet.Connected(name)
		if len(sockets) > 1 {
			return fmt.Errorf("%s is connected %d times", name, len(sockets))
		}
		for _, s := range sockets {
			connected[s] = true
		}
	}
	for _, s := range w.sockets() {
		if !connected[s] && !w.orphans[s] {
			return fmt.Errorf("%s is left behind", s)
		}
	}
	return nil
}

// leaks checks what may not grow, whatever has happened.
func (w *world) leaks() error {
	if n := w.program.files(); n > 60 {
		return fmt.Errorf("%d open files", n)
	}
	if n := w.program.resident(); n > 64 {
		return fmt.Errorf("%d MiB resident", n)
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
