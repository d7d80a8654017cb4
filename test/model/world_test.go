package model

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

// world is one node, the program on it, and the model of both.
type world struct {
	dir       string
	hw        *hardware
	kubelet   *kubelettest.Kubelet
	kubeletUp bool
	cgroups   *kubelettest.Cgroups
	program   *program // nil while it does not run

	config       configuration // the served one
	trial        trial
	edits        int
	configBroken bool // on disk
	mounted      bool
	faulty       map[string]string // "fill" or "lock", by directory
	claims       []claim
	pods         int             // admitted ever
	orphans      map[string]bool // sockets of killed programs
	truth        truth
	waited       bool // by "wait": devices may have left lists
}

// claim is a slot that a pod holds.
type claim struct {
	kubelettest.Request
	id    string
	thing string // with that ID at admission
	moves int    // of the thing, at admission
	path  string // of a link; empty: injected otherwise
	sure  bool   // the program has saved the injection
}

// newWorld returns a node with a running kubelet.
func newWorld(t testing.TB, dir string, s script) (*world, error) {
	w := &world{dir: dir, faulty: map[string]string{}, orphans: map[string]bool{}, cgroups: kubelettest.NewCgroups(t), config: newConfiguration(), truth: newTruth()}
	for _, name := range []string{"host", "config", "state", "run", "cdi"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	if err := w.mount(); err != nil {
		return nil, err
	}
	w.hw = newHardware(t, filepath.Join(dir, "host"))
	if err := w.configure(); err != nil {
		return nil, err
	}
	keying := kubelettest.ByResource
	if slices.Contains(s, "kubelet by socket") {
		keying = kubelettest.BySocket
	}
	w.kubelet = kubelettest.New(kubelettest.Options{
		Dir: filepath.Join(dir, "k"), PodResources: filepath.Join(dir, "pods.sock"), Keying: keying,
	})
	w.kubeletUp = true
	return w, w.kubelet.Start()
}

func (w *world) close() {
	if w.program != nil {
		w.program.kill()
	}
	w.kubelet.Stop()
	w.unmount()
	_ = os.RemoveAll(w.dir)
}

// do carries out one line. Its errors are those of the test itself.
func (w *world) do(line string) error {
	f := append(strings.Fields(strings.TrimPrefix(line, "+")), "", "", "")
	switch verb, object := f[0], f[1]; verb + " " + object {
	case "break config", "touch config":
		w.configBroken = verb == "break" && w.program != nil // no program starts without a good one
		return w.configure()
	case "restart kubelet", "start kubelet":
		if verb == "start" && w.kubeletUp {
			return nil
		}
		return w.restartKubelet()
	case "stop kubelet":
		w.kubeletUp = false
		w.kubelet.Stop()
	case "forget kubelet":
		for _, c := range w.claims {
			w.kubelet.Remove(c.Namespace, c.Pod)
		}
		w.claims = nil
		return w.restartKubelet()
	case "refuse pods":
		w.kubelet.RefusePods(errors.New("refused by the script"))
	case "answer pods":
		w.kubelet.RefusePods(nil)
	case "start program":
		if w.program != nil {
			return nil
		}
		if w.configBroken && (w.trial.good == nil || w.trial.goodUnknown || w.truth.stateUnsaved) {
			w.configBroken = false // the program would not start
			if err := w.configure(); err != nil {
				return err
			}
		}
		if w.trial.good == nil && w.trial.kills >= maxTries {
			// The program would serve nothing.
			w.edits++
			w.config.edit = w.edits
			w.trial.kills = 0
			if err := w.configure(); err != nil {
				return err
			}
		}
		w.config = w.trial.programStarts(w.config, w.configBroken)
		return w.start()
	case "stop program":
		if w.program != nil {
			return w.stop()
		}
	case "kill program":
		if w.program != nil {
			w.kill()
		}
	case "kubelet by": // newWorld reads it
	default:
		return w.doVerb(verb, object, f[2:])
	}
	return nil
}

// doVerb carries out a line whose verb alone selects the action.
func (w *world) doVerb(verb, object string, rest []string) error {
	switch verb {
	case "plug":
		place, _ := strconv.Atoi(rest[0])
		number, _ := strconv.Atoi(rest[1])
		if things[object].nodes == 0 || place < 1 || place > 8 {
			return fmt.Errorf("want plug THING PLACE NUMBER")
		}
		w.hw.plug(object, place, number)
	case "pull":
		w.hw.pull(object)
	case "swap":
		w.hw.swap(object, rest[0])
	case "edit":
		return w.edit(object, rest[0], rest[1])
	case "admit":
		return w.admit(object)
	case "release":
		if len(w.claims) > 0 {
			w.kubelet.Remove(w.claims[0].Namespace, w.claims[0].Pod)
			w.claims = w.claims[1:]
		}
	case "cut":
		w.cut(w.config.fullName(object))
	case "fill", "lock":
		return w.injectFault(verb, object)
	case "free":
		for dir := range w.faulty {
			if err := w.clearFault(dir); err != nil {
				return err
			}
		}
	case "wait":
		w.waited = true
		d, err := time.ParseDuration(object)
		time.Sleep(d)
		return err
	default:
		return fmt.Errorf("unknown line %q", verb)
	}
	return nil
}

// restartKubelet restarts the kubelet, which removes all sockets of plugins.
func (w *world) restartKubelet() error {
	w.kubeletUp = true
	w.orphans = map[string]bool{}
	return w.kubelet.Restart()
}

// cut ends a stream and waits until the kubelet has noticed.
func (w *world) cut(name string) {
	before := w.kubelet.Connected(name)
	if len(before) == 0 {
		return
	}
	w.kubelet.CutStream(name)
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_ = w.kubelet.WaitFor(ctx, func() bool { return !slices.Equal(w.kubelet.Connected(name), before) })
}

// admit makes a pod with one slot, if one is free.
func (w *world) admit(resource string) error {
	if !w.kubeletUp || w.program == nil || w.config.of[resource].removed {
		return nil
	}
	w.pods++
	c := claim{Request: kubelettest.Request{Namespace: "ns", Pod: fmt.Sprint("pod-", w.pods), Container: "c", Resource: w.config.fullName(resource)}}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	a, err := w.kubelet.Admit(ctx, c.Request, 1)
	if err != nil {
		return ctx.Err() // no free slot, or no plugin: settle checks whether there should be one
	}
	c.id = a.IDs[0]
	for _, d := range a.Response.Devices {
		if strings.HasPrefix(d.HostPath, filepath.Join(w.dir, "run")) {
			c.path = d.HostPath
		}
	}
	w.claims = append(w.claims, c)
	return nil
}
