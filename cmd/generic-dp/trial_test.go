package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

const killLimit = 30 * time.Second

// victim is an instance of the program that a test kills.
type victim struct {
	*testing.T
	dir     string
	flags   []string
	kubelet *kubelettest.Kubelet
	cmd     *exec.Cmd

	mu  sync.Mutex
	log strings.Builder
}

func newVictim(t *testing.T) *victim {
	t.Helper()
	dir := kubelettest.TempDir(t)
	host := sysfstest.New(t)
	v := &victim{T: t, dir: dir, flags: []string{
		"serve", "--listen", "", "--config", dir + "/c.toml", "--sysfs", host.Sysfs(), "--dev", host.Dev(), "--kubelet-dir", dir + "/kubelet",
		"--pod-resources", dir + "/pods.sock", "--run-dir", dir + "/run", "--state-dir", dir + "/state", "--cdi-dir", dir + "/cdi",
	}}
	v.kubelet = kubelettest.New(kubelettest.Options{Dir: dir + "/kubelet", PodResources: dir + "/pods.sock"})
	must(t, v.kubelet.Start())
	t.Cleanup(func() {
		if v.cmd != nil {
			v.end(syscall.SIGKILL)
		}
		v.kubelet.Stop()
		if t.Failed() {
			t.Log(v.log.String())
		}
	})
	return v
}

// newServed is a victim that serves a last good configuration of one slot.
func newServed(t *testing.T) *victim {
	t.Helper()
	v := newVictim(t)
	v.configure(1)
	v.serve(1)
	v.end(syscall.SIGTERM)
	v.serve(1)
	return v
}

// configure makes a configuration of a device with count slots.
func (v *victim) configure(count int) {
	v.Helper()
	text := fmt.Sprintf("domain = \"example.com\"\n[[resource]]\nname = \"x\"\ncount = %d\nmatch.virtual = [\"a\"]\ncontainer.env.X = \"1\"\n", count)
	must(v, os.WriteFile(v.dir+"/c.toml", []byte(text), 0o600))
}

func (v *victim) start() {
	v.Helper()
	v.cmd = exec.Command("generic-dp", v.flags...)
	v.cmd.Env = append(os.Environ(), "KUBERNETES_SERVICE_HOST=")
	out, err := v.cmd.StderrPipe()
	if err == nil {
		err = v.cmd.Start()
	}
	must(v, err)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			v.mu.Lock()
			v.log.WriteString(lines.Text() + "\n")
			v.mu.Unlock()
		}
	}()
}

// serve starts an instance and waits for its list with a number of slots.
func (v *victim) serve(slots int) {
	v.Helper()
	v.start()
	v.listed(slots)
}

// end ends the instance by a signal and forgets its log. The kubelet has noticed the end when it
// returns: otherwise the next instance would seem to be registered before it runs.
func (v *victim) end(signal syscall.Signal) {
	v.Helper()
	_ = v.cmd.Process.Signal(signal)
	if err := v.cmd.Wait(); signal == syscall.SIGTERM && err != nil {
		v.Errorf("it ended with %v:\n%s", err, v.logged())
	}
	v.cmd = nil
	ctx, cancel := context.WithTimeout(context.Background(), killLimit)
	defer cancel()
	err := v.kubelet.WaitFor(ctx, func() bool { return len(v.kubelet.Connected("example.com/x")) == 0 })
	if err != nil {
		v.Errorf("the kubelet is still connected: %v", err)
	}
	v.mu.Lock()
	v.log.Reset()
	v.mu.Unlock()
}

func (v *victim) logged() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.log.String()
}

// listed waits for a list with a number of slots from an instance that is registered.
func (v *victim) listed(slots int) {
	v.Helper()
	ctx, cancel := context.WithTimeout(v.Context(), killLimit)
	defer cancel()
	if err := v.kubelet.WaitFor(ctx, func() bool {
		list, _ := v.kubelet.Latest("example.com/x")
		return len(v.kubelet.Connected("example.com/x")) == 1 && len(list.Healthy()) == slots
	}); err != nil {
		v.Fatalf("a list of %d: %v:\n%s", slots, err, v.logged())
	}
}

func (v *victim) eventually(what string, condition func() bool) {
	v.Helper()
	tick := time.NewTicker(200 * time.Microsecond)
	defer tick.Stop()
	for deadline := time.Now().Add(killLimit); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			v.Fatalf("%s: not within %s:\n%s", what, killLimit, v.logged())
		}
	}
}

func (v *victim) marked() bool {
	_, err := os.Stat(v.dir + "/state/config-trial.json")
	return err == nil
}

const died = "the program died while it tried this configuration"

// A configuration during whose trial the program is killed three times is not tried again by the next
// start, but by an edit and on request.
func TestKilledDuringATrial(t *testing.T) {
	t.Parallel()
	for name, point := range map[string]func(v *victim){
		"before the text is parsed": func(v *victim) {
			v.configure(2)
			v.eventually("the mark", v.marked)
		},
		"when the list is sent": func(v *victim) {
			v.configure(2)
			v.listed(2)
		},
		"at start": func(v *victim) {
			v.end(syscall.SIGKILL)
			v.configure(2)
			v.start()
			v.eventually("the mark", v.marked)
		},
		"during a broken edit": func(v *victim) {
			v.configure(2)
			v.listed(2)
			must(v, os.WriteFile(v.dir+"/c.toml", []byte("["), 0o600))
			v.eventually("the problem", func() bool { return strings.Contains(v.logged(), "configuration is broken") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newServed(t)
			if v.marked() {
				t.Error("the last good one is marked")
			}
			point(v)
			v.end(syscall.SIGKILL)
			v.configure(2)
			for range 2 {
				v.serve(2)
				v.end(syscall.SIGKILL)
			}

			for range 2 { // it stays that way
				v.serve(1)
				v.eventually("the reason", func() bool { return strings.Contains(v.logged(), died) })
				v.end(syscall.SIGKILL)
			}
			v.serve(1)
			_ = v.cmd.Process.Signal(syscall.SIGHUP)
			v.listed(2)
			v.end(syscall.SIGKILL)
			v.serve(1)
			v.eventually("the count", func() bool { return strings.Contains(v.logged(), "(4 times)") })
			v.configure(3)
			v.listed(3)
			v.end(syscall.SIGTERM) // survived
			if v.marked() {
				t.Error("a mark is left after a good end")
			}
			v.serve(3)
			v.end(syscall.SIGKILL)
			v.serve(3)
		})
	}
}

// A resource that an edit removed is not offered again, although the last good configuration has it.
// The edit may be undone.
func TestKilledAfterARemoval(t *testing.T) {
	t.Parallel()
	v := newVictim(t)
	const (
		kept    = "domain = \"example.com\"\n[[resource]]\nname = \"x\"\nmatch.virtual = [\"a\"]\ncontainer.env.X = \"1\"\n"
		removed = "[[resource]]\nname = \"y\"\nmatch.virtual = [\"b\"]\ncontainer.env.X = \"1\"\n"
	)
	edit := func(text string) {
		t.Helper()
		must(t, os.WriteFile(v.dir+"/c.toml", []byte(text), 0o600))
	}
	healthy := func(resource string) int {
		list, _ := v.kubelet.Latest("example.com/" + resource)
		return len(list.Healthy())
	}
	edit(kept + removed)
	v.serve(1)
	v.eventually("the second resource", func() bool { return healthy("y") == 1 })
	v.end(syscall.SIGTERM)
	v.serve(1)
	v.eventually("the second resource", func() bool { return healthy("y") == 1 })
	edit(kept)
	v.eventually("the end of the second resource", func() bool { return healthy("y") == 0 })
	v.end(syscall.SIGKILL)
	for range 2 {
		v.serve(1)
		v.end(syscall.SIGKILL)
	}
	for range 2 {
		v.serve(1)
		v.eventually("the reason", func() bool { return strings.Contains(v.logged(), died) })
		if strings.Contains(v.logged(), "resources=2") || healthy("y") > 0 {
			t.Fatal("the removed resource is offered again")
		}
		v.end(syscall.SIGKILL)
	}
	v.serve(1)
	edit(kept + removed)
	v.eventually("the second resource after the edit was undone", func() bool { return healthy("y") == 1 })
}

// After ten seconds a configuration has proven itself.
func TestKilledAfterATrial(t *testing.T) {
	t.Parallel()
	v := newServed(t)
	v.configure(2)
	v.listed(2)
	if !v.marked() {
		t.Error("a new configuration is not marked")
	}
	v.configure(1) // back to the last good one
	v.listed(1)
	if v.marked() {
		t.Error("the last good one is marked, or the one before it")
	}
	v.configure(2)
	v.listed(2)
	v.eventually("the end of the trial", func() bool { return !v.marked() })
	v.end(syscall.SIGKILL)
	v.serve(2)
	v.end(syscall.SIGKILL)
	must(t, os.WriteFile(v.dir+"/c.toml", []byte("["), 0o600))
	v.serve(2)
}
