package main

import (
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

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/fakekubelet"
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
			return f.try(cmd, listen, func(ctx context.Context, s *session) error {
				if listen != "" {
					s.printf("status page: http://%s/\n", listen)
				}
				return s.show(ctx, once)
			})
		},
	}
	cmd.Flags().AddFlagSet(f.pick("allow", "domains"))
	cmd.Flags().StringVar(&listen, "listen", "", f.all.Lookup("listen").Usage)
	cmd.Flags().BoolVar(&once, "once", false, "exit after the first lists")
	return cmd
}

// session is serve in this process, with a fake kubelet. It prints what the kubelet gets.
type session struct {
	flags   *flags
	dir     string        // everything that is written is below it
	options agent.Options // of agent
	agent   *agent.Agent
	kubelet *fakekubelet.Kubelet
	out     io.Writer
}

// try runs a session until use returns.
func (f *flags) try(cmd *cobra.Command, listen string, use func(context.Context, *session) error) (err error) {
	// try reports a broken configuration: there is no last good one.
	if _, err := f.load(f.config); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "generic-dp-try-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if f.level != "error" {
		f.level = "warn" // the session prints the rest
	}
	s := &session{flags: f, dir: dir, options: f.options(cmd.ErrOrStderr()), out: cmd.OutOrStdout()}
	s.options.Paths, s.options.Listen = f.below(dir), listen
	s.options.NoDRA = true  // there is no API server
	s.options.InPod = false // what is checked there is about directories of the host
	if f.paths.WritesCDI() {
		if err := os.Mkdir(s.options.Paths.CDIDir, 0o700); err != nil {
			return err
		}
	}
	if f.piped != nil { // the agent reads it again
		s.options.Config = filepath.Join(dir, "standard input")
		if err := os.WriteFile(s.options.Config, f.piped.Data, 0o600); err != nil {
			return err
		}
	}
	if s.kubelet, err = fakekubelet.Start(s.options.Paths.KubeletDir, s.options.Paths.PodResources); err != nil {
		return err
	}
	defer s.kubelet.Stop()
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	if s.agent, err = agent.New(ctx, s.options); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.agent.Run(ctx) })
	group.Go(func() error {
		defer stop()
		if err := s.settle(ctx); err != nil {
			return err
		}
		return use(ctx, s)
	})
	return group.Wait()
}

// below returns the paths with all written files below dir.
func (f *flags) below(dir string) agent.Paths {
	p := f.paths
	// Short names: socket paths have at most 107 bytes.
	p.KubeletDir = filepath.Join(dir, "kubelet")
	p.PodResources = filepath.Join(dir, "pods.sock")
	p.RunDir = filepath.Join(dir, "run")
	p.StateDir = filepath.Join(dir, "state")
	p.CDIDir = filepath.Join(dir, "cdi")
	if len(p.SpecDirs) == 0 {
		p.SpecDirs = []string{cdi.StaticDir, f.paths.CDIDir, p.CDIDir}
	}
	return p
}

func (s *session) show(ctx context.Context, once bool) error {
	for _, name := range s.agent.Names() {
		s.printResource(ctx, name)
	}
	if once {
		return nil
	}
	s.printf("\nwatching for changes; stop with Ctrl-C\n")
	shown := s.devices(s.agent.Names()...)
	for {
		changed := s.kubelet.Changed()
		shown = s.changes(shown)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

func (s *session) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

// settle waits until the fake kubelet has every list of the agent.
func (s *session) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	select {
	case <-s.agent.Settled():
	case <-ctx.Done():
		return fmt.Errorf("first scan of the host: %w", ctx.Err())
	}
	for {
		changed := s.kubelet.Changed()
		if !slices.ContainsFunc(s.agent.Names(), func(name string) bool {
			_, _, known := s.kubelet.Devices(name)
			return !known && len(s.agent.Entries(name)) > 0
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

// printResource prints a resource, its devices and what a container would get.
func (s *session) printResource(ctx context.Context, name string) {
	s.printf("%s: %s", name, count(len(s.agent.Entries(name)), "device"))
	healthy, slots, known := s.kubelet.Devices(name)
	if known {
		s.printf(", allocatable %d of %s\n", len(healthy), count(slots, "slot"))
	} else {
		s.printf(" on this host; registers with its first device\n")
	}
	devices := s.devices(name)
	for _, e := range s.agent.Entries(name) {
		s.printf("  %s  %s\n", e.Offer.ID, devices[name+" "+e.Offer.ID])
	}
	if len(healthy) == 0 {
		return
	}
	ids, r, err := s.kubelet.Allocate(ctx, name, healthy, 1)
	if err != nil {
		s.printf("  a container that requests 1 is rejected: %v\n", err)
		return
	}
	s.printf("  a container that requests 1 gets %s with\n", ids[0])
	s.printResponse(r)
}

// changes prints the differences to the devices printed last, and returns the current ones.
func (s *session) changes(shown map[string]string) (now map[string]string) {
	now = s.devices(s.agent.Names()...)
	stamp := time.Now().Format("15:04:05.000")
	for _, key := range slices.Sorted(maps.Keys(now)) {
		switch before, known := shown[key]; {
		case !known:
			s.printf("%s new      %s  %s\n", stamp, key, now[key])
		case before != now[key]:
			s.printf("%s changed  %s  %s\n", stamp, key, now[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(shown)) {
		if _, still := now[key]; !still {
			s.printf("%s left     %s\n", stamp, key)
		}
	}
	return now
}

// devices describes the devices of resources by resource and ID: health, reason, slots
// where there are several, and nodes.
func (s *session) devices(resources ...string) map[string]string {
	all := map[string]string{}
	for _, name := range resources {
		for _, e := range s.agent.Entries(name) {
			d := status.NewDevice(e.Offer, e.Healthy, e.Reason)
			text := d.Health
			if d.Reason != "" {
				text += " (" + d.Reason + ")"
			}
			if d.Slots > 1 {
				text += ", " + count(d.Slots, "slot")
			}
			if host := d.Host(); len(host) > 0 {
				text += "  " + strings.Join(host, " ")
			}
			all[name+" "+d.ID] = text
		}
	}
	return all
}
