package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	"github.com/generic-dp/generic-dp/internal/kubelettest"
	"github.com/generic-dp/generic-dp/metrics"
)

// tryFor is how long try waits for the first lists and for an answer: far
// more than a host takes, so that only something broken reaches it.
const tryFor = 20 * time.Second

func newTry(f *flags) *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "try",
		Short: "run the whole thing on this host without a kubelet, and show what happens",
		Long: `try runs everything that serve does, against a stand-in for the kubelet inside
this process, over real sockets in a temporary directory. It prints each
resource, its devices and what a container would get, then shows what changes
until it is stopped. It needs no privilege beyond reading /sys and /dev.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return try(cmd.Context(), f, once, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().AddFlagSet(f.pick("allow"))
	cmd.Flags().BoolVar(&once, "once", false, "end after the first lists")
	return cmd
}

func try(ctx context.Context, f *flags, once bool, stdout, stderr io.Writer) (err error) {
	// A broken file is what try is to find: no last good copy stands in here.
	if _, err := f.load(f.config); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "generic-dp-try-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	options := tryOptions(f, dir, stderr)
	kubelet := kubelettest.New(kubelettest.Options{Dir: options.Paths.KubeletDir, PodResources: options.Paths.PodResources})
	if err := kubelet.Start(); err != nil {
		return err
	}
	defer kubelet.Stop()
	a, err := agent.New(options)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.Run(ctx) })
	group.Go(func() error {
		if once {
			defer stop()
		}
		t := trial{agent: a, paths: options.Paths, specs: cdi.NewHostSpecs(options.Paths.RunDir, options.Paths.SpecDirs...), kubelet: kubelet, out: stdout}
		return t.show(ctx, once)
	})
	return group.Wait()
}

// tryOptions are those of serving, with everything that is written below dir.
// Only warnings are logged: what happens is printed.
func tryOptions(f *flags, dir string, stderr io.Writer) agent.Options {
	quiet := *f
	quiet.level = max(f.level, slog.LevelWarn)
	options := quiet.options(stderr)
	options.Listen = ""
	// The names are short: a socket's path has at most 107 bytes.
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

// trial prints what the stand-in for the kubelet has been told.
type trial struct {
	agent   *agent.Agent
	paths   agent.Paths
	specs   *cdi.HostSpecs // of others
	kubelet *kubelettest.Kubelet
	out     io.Writer
	shown   map[string]line // by resource and ID
	asked   int
}

// line is what was printed last of a device.
type line struct{ resource, id, health, reason, handed string }

func (t *trial) show(ctx context.Context, once bool) error {
	if err := t.settle(ctx); err != nil {
		return err
	}
	for _, name := range t.agent.Names() {
		if err := t.resource(ctx, name); err != nil {
			return err
		}
	}
	if once {
		return nil
	}
	fmt.Fprintf(t.out, "\nwatching for changes; stop with Ctrl-C\n")
	t.shown = t.lines()
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

// settle waits until the stand-in has been told all that the agent lists and
// nothing is about to change by itself.
func (t *trial) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	select {
	case <-t.agent.Settled():
	case <-ctx.Done():
		return fmt.Errorf("the first look at the host: %w", ctx.Err())
	}
	return t.kubelet.WaitFor(ctx, func() bool {
		return !slices.ContainsFunc(t.agent.Names(), func(name string) bool {
			_, lists := t.kubelet.Latest(name)
			return lists == 0 && len(t.agent.Entries(name)) > 0
		})
	})
}

// resource prints one resource, its devices and what a container would get.
func (t *trial) resource(ctx context.Context, name string) error {
	entries := t.agent.Entries(name)
	fmt.Fprintf(t.out, "%s: %s", name, count(len(entries), "device"))
	list, n := t.kubelet.Latest(name)
	if n > 0 {
		fmt.Fprintf(t.out, ", allocatable %d of %s", len(list.Healthy()), count(len(list.Devices), "slot"))
	} else {
		fmt.Fprintf(t.out, " on this host; registers when its first device is there")
	}
	fmt.Fprintln(t.out)
	for _, l := range t.linesOf(name) {
		fmt.Fprintf(t.out, "  %s\n", l)
	}
	if len(list.Healthy()) == 0 {
		return nil
	}
	t.asked++
	admission, err := t.kubelet.Admit(ctx, kubelettest.Claim{Namespace: "try", Pod: fmt.Sprint(t.asked), Container: "main", Resource: name}, 1)
	if err != nil {
		fmt.Fprintf(t.out, "  a container that asks for 1 is refused: %v\n", err)
		return nil
	}
	fmt.Fprintf(t.out, "  a container that asks for 1 gets %s with\n", admission.IDs[0])
	r := admission.Response
	for _, d := range r.GetDevices() {
		fmt.Fprintf(t.out, "    node        %s at %s (%s)\n", t.node(d.GetHostPath()), d.GetContainerPath(), d.GetPermissions())
	}
	for _, m := range r.GetMounts() {
		access := "read-write"
		if m.GetReadOnly() {
			access = "read-only"
		}
		fmt.Fprintf(t.out, "    mount       %s at %s (%s)\n", m.GetHostPath(), m.GetContainerPath(), access)
	}
	for _, name := range slices.Sorted(maps.Keys(r.GetEnvs())) {
		fmt.Fprintf(t.out, "    env         %s=%s\n", name, r.GetEnvs()[name])
	}
	for _, name := range slices.Sorted(maps.Keys(r.GetAnnotations())) {
		fmt.Fprintf(t.out, "    annotation  %s=%s\n", name, r.GetAnnotations()[name])
	}
	for _, c := range r.GetCdiDevices() {
		printCDI(t.out, c.GetName(), t.paths.CDIDir, t.specs)
	}
	return nil
}

// node names a node as the host does, and says where a link stands for it.
func (t *trial) node(handed string) string {
	if target, err := os.Readlink(handed); err == nil {
		return target + " (by a link that follows it)"
	}
	return handed
}

// changes prints what differs from what was printed last.
func (t *trial) changes() {
	now := t.lines()
	for _, key := range slices.Sorted(maps.Keys(now)) {
		l, old := now[key], t.shown[key]
		switch {
		case old == line{}:
			fmt.Fprintf(t.out, "%s new      %s %s\n", stamp(), l.resource, l)
		case l != old:
			fmt.Fprintf(t.out, "%s changed  %s %s\n", stamp(), l.resource, l)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(t.shown)) {
		if _, still := now[key]; !still {
			fmt.Fprintf(t.out, "%s left     %s %s\n", stamp(), t.shown[key].resource, t.shown[key].id)
		}
	}
	t.shown = now
}

func stamp() string { return time.Now().Format("15:04:05.000") }

func (t *trial) lines() map[string]line {
	all := map[string]line{}
	for _, name := range t.agent.Names() {
		for _, l := range t.linesOf(name) {
			all[name+" "+l.id] = l
		}
	}
	return all
}

func (t *trial) linesOf(name string) []line {
	var lines []line
	for _, e := range t.agent.Entries(name) {
		d := metrics.NewDevice(e.Offer, e.Healthy, e.Reason)
		lines = append(lines, line{name, d.ID, d.Health, d.Reason, strings.Join(d.Host(), ",")})
	}
	return lines
}

func (l line) String() string {
	s := l.id + "  " + l.health
	if l.reason != "" {
		s += " (" + l.reason + ")"
	}
	if l.handed != "" {
		s += "  " + strings.ReplaceAll(l.handed, ",", " ")
	}
	return s
}
