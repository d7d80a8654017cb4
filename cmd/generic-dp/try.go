package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/generic-dp/generic-dp/agent"
	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/standin"
	"github.com/generic-dp/generic-dp/metrics"
)

// tryFor is the timeout of the first lists, far longer than a working host needs.
const tryFor = 20 * time.Second

func newTry(f *flags) *cobra.Command {
	var once bool
	var listen string
	cmd := &cobra.Command{
		Use:   "try",
		Short: "run serve against a fake kubelet and show the result",
		Long: `try runs serve against a fake kubelet inside this process, over real sockets in
a temporary directory. It prints each resource, its devices and what a
container would get, then changes until it is stopped. It needs no privileges
except for reading /sys and /dev.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return try(cmd.Context(), f, listen, cmd.OutOrStdout(), cmd.ErrOrStderr(), func(ctx context.Context, t *trial) error {
				if listen != "" {
					t.printf("status page: http://%s/\n", listen)
				}
				return t.show(ctx, once)
			})
		},
	}
	cmd.Flags().AddFlagSet(f.pick("allow", "domains"))
	cmd.Flags().StringVar(&listen, "listen", "", f.all.Lookup("listen").Usage)
	cmd.Flags().BoolVar(&once, "once", false, "exit after the first lists")
	return cmd
}

// try runs serve against a fake kubelet while use does.
func try(ctx context.Context, f *flags, listen string, stdout, stderr io.Writer, use func(context.Context, *trial) error) (err error) {
	// try reports a broken configuration: there is no last good one.
	if _, err := f.load(f.config); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "generic-dp-try-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	options := tryOptions(f, dir, stderr)
	if f.paths.WritesCDI() {
		if err := os.Mkdir(options.Paths.CDIDir, 0o700); err != nil {
			return err
		}
	}
	options.Listen = listen
	if f.piped != nil { // the agent reads it again
		options.Config = filepath.Join(dir, "standard input")
		if err := os.WriteFile(options.Config, f.piped.Data, 0o600); err != nil {
			return err
		}
	}
	kubelet, err := standin.Start(options.Paths.KubeletDir, options.Paths.PodResources)
	if err != nil {
		return err
	}
	defer kubelet.Stop()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a, err := agent.New(ctx, options)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.Run(ctx) })
	group.Go(func() error {
		defer stop()
		p := options.Paths
		t := &trial{agent: a, kubelet: kubelet, paths: p, runDir: f.paths.RunDir, out: stdout,
			own: p.SpecWriter(), foreign: p.HostSpecs()}
		if err := t.settle(ctx); err != nil {
			return err
		}
		return use(ctx, t)
	})
	return group.Wait()
}

// tryOptions are the options of serve, with all written files below dir. Only warnings
// are logged: try prints the rest.
func tryOptions(f *flags, dir string, stderr io.Writer) agent.Options {
	warnings := *f
	if warnings.level != "error" {
		warnings.level = "warn"
	}
	options := warnings.options(stderr)
	options.NoDRA = true  // there is no API server
	options.InPod = false // what is checked there is about directories of the host
	// Short names: socket paths have at most 107 bytes.
	options.Paths.KubeletDir = filepath.Join(dir, "kubelet")
	options.Paths.PodResources = filepath.Join(dir, "pods.sock")
	options.Paths.RunDir = filepath.Join(dir, "run")
	options.Paths.StateDir = filepath.Join(dir, "state")
	options.Paths.CDIDir = filepath.Join(dir, "cdi")
	if len(options.Paths.SpecDirs) == 0 {
		options.Paths.SpecDirs = []string{cdi.StaticDir, f.paths.CDIDir, options.Paths.CDIDir}
	}
	return options
}

// trial prints the lists and responses that the fake kubelet gets.
type trial struct {
	agent   *agent.Agent
	kubelet *standin.Kubelet
	paths   agent.Paths
	runDir  string // of serve
	own     *cdi.Writer
	foreign *cdi.HostSpecs
	out     io.Writer
	shown   map[string]string // health, reason and nodes as last printed, by resource and ID
}

func (t *trial) show(ctx context.Context, once bool) error {
	for _, name := range t.agent.Names() {
		t.resource(ctx, name)
	}
	if once {
		return nil
	}
	t.printf("\nwatching for changes; stop with Ctrl-C\n")
	t.shown = t.devices(t.agent.Names()...)
	for {
		changed := t.kubelet.Changed()
		t.changes()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

func (t *trial) printf(format string, args ...any) { fmt.Fprintf(t.out, format, args...) }

// settle waits until the fake kubelet has every list of the agent.
func (t *trial) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	select {
	case <-t.agent.Settled():
	case <-ctx.Done():
		return fmt.Errorf("first scan of the host: %w", ctx.Err())
	}
	for {
		changed := t.kubelet.Changed()
		if !slices.ContainsFunc(t.agent.Names(), func(name string) bool {
			_, _, known := t.kubelet.Devices(name)
			return !known && len(t.agent.Entries(name)) > 0
		}) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("first lists: %w", ctx.Err())
		}
	}
}

// resource prints a resource, its devices and what a container would get.
func (t *trial) resource(ctx context.Context, name string) {
	t.printf("%s: %s", name, count(len(t.agent.Entries(name)), "device"))
	healthy, slots, known := t.kubelet.Devices(name)
	if known {
		t.printf(", allocatable %d of %s\n", len(healthy), count(slots, "slot"))
	} else {
		t.printf(" on this host; registers with its first device\n")
	}
	devices := t.devices(name)
	for _, e := range t.agent.Entries(name) {
		t.printf("  %s  %s\n", e.Offer.ID, devices[name+" "+e.Offer.ID])
	}
	if len(healthy) == 0 {
		return
	}
	ids, r, err := t.kubelet.Allocate(ctx, name, healthy, 1)
	if err != nil {
		t.printf("  a container that requests 1 is rejected: %v\n", err)
		return
	}
	t.printf("  a container that requests 1 gets %s with\n", ids[0])
	t.response(r)
}

// response prints what a container gets.
func (t *trial) response(r *standin.Response) {
	for _, part := range t.parts(r, " (by a link that follows the device)") {
		indent, edits := "    ", part.edits
		if part.name != "" {
			t.printf("    CDI device  %s\n", part.name)
			indent += "  "
		}
		line := func(format string, args ...any) { t.printf(indent+format+"\n", args...) }
		for _, n := range edits.DeviceNodes {
			owner := ""
			if n.UID != nil {
				owner += fmt.Sprintf(", uid %d", *n.UID)
			}
			if n.GID != nil {
				owner += fmt.Sprintf(", gid %d", *n.GID)
			}
			if n.FileMode != nil {
				owner += fmt.Sprintf(", mode %04o", *n.FileMode&0o7777)
			}
			line("node        %s at %s (%s)%s", cmp.Or(n.HostPath, n.Path), n.Path, n.Permissions, owner)
		}
		for _, n := range edits.NetDevices {
			line("interface   %s as %s", n.HostInterfaceName, n.Name)
		}
		for _, m := range edits.Mounts {
			line("mount       %s at %s (%s)", t.served(m.HostPath), m.ContainerPath, map[bool]string{true: "read-only", false: "read-write"}[slices.Contains(m.Options, "ro")])
		}
		for _, text := range edits.Env {
			line("env         %s", text)
		}
		for _, h := range edits.Hooks {
			line("hook        %s %s", h.HookName, h.Path)
		}
		if len(edits.AdditionalGIDs) > 0 {
			line("groups      %s", strings.Trim(fmt.Sprint(edits.AdditionalGIDs), "[]"))
		}
		if part.ours {
			continue
		}
		foreign, _ := t.foreign.Devices()
		for _, d := range foreign {
			for _, node := range d.Nodes {
				if d.Name == part.name {
					line("node        %s", node.Path)
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.GetAnnotations())) {
		t.printf("    annotation  %s=%s\n", name, r.GetAnnotations()[name])
	}
}

// changes prints the differences to the devices printed last.
func (t *trial) changes() {
	now, stamp := t.devices(t.agent.Names()...), time.Now().Format("15:04:05.000")
	for _, key := range slices.Sorted(maps.Keys(now)) {
		switch shown, known := t.shown[key]; {
		case !known:
			t.printf("%s new      %s  %s\n", stamp, key, now[key])
		case shown != now[key]:
			t.printf("%s changed  %s  %s\n", stamp, key, now[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.shown)) {
		if _, still := now[key]; !still {
			t.printf("%s left     %s\n", stamp, key)
		}
	}
	t.shown = now
}

// devices describes the devices of resources: health, reason and nodes, by resource and
// ID.
func (t *trial) devices(resources ...string) map[string]string {
	all := map[string]string{}
	for _, name := range resources {
		for _, e := range t.agent.Entries(name) {
			d := metrics.NewDevice(e.Offer, e.Healthy, e.Reason)
			text := d.Health
			if d.Reason != "" {
				text += " (" + d.Reason + ")"
			}
			if host := d.Host(); len(host) > 0 {
				text += "  " + strings.Join(host, " ")
			}
			all[name+" "+d.ID] = text
		}
	}
	return all
}
