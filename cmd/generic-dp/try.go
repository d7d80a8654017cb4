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
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
	"github.com/generic-dp/generic-dp/internal/tools/manifest"
)

// tryFor is the timeout for the first lists. It is far longer than a working host needs. Then the
// command fails instead of showing a part of the devices.
const tryFor = 20 * time.Second

// newTry returns the command try. Without --once, it runs until a signal and then succeeds.
func newTry(f *flags) *cobra.Command {
	var once bool
	var listen string
	var output *string
	cmd := &cobra.Command{
		Use:   "try [RESOURCE[=N]]",
		Short: "show what containers would get, by serve without a kubelet",
		Long: `try runs serve inside this process, without a kubelet and in a temporary
directory. It prints each resource, its devices and what a container would get,
and then changes until it is stopped. It needs no privileges except for reading
/sys and /dev.

With RESOURCE, it requests N devices (default 1), and prints what the container
would get: as text (table), as the answer to the kubelet (json), or as arguments
of podman run (podman).

  eval podman run --rm $(generic-dp try -o podman zigbee) alpine ls /dev`,
		Args:              cli.WantArgs(0, 1, "want at most one RESOURCE or RESOURCE=N"),
		ValidArgsFunction: complete(f.resourceNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				name, size, err := parseRequest(args[0])
				if err != nil {
					return err
				}
				if listen != "" {
					return cli.Usagef("--listen: a status page is only served without RESOURCE")
				}
				return f.try(cmd, "", func(ctx context.Context, s *session) error {
					return s.allocate(ctx, name, size, *output)
				})
			}
			if *output != "table" {
				return cli.Usagef("-o %s: want a RESOURCE", *output)
			}
			return f.try(cmd, listen, func(ctx context.Context, s *session) error {
				if address := s.agent.Address(); address != "" {
					s.printf("status page: http://%s/\n", address)
				}
				return s.show(ctx, once)
			})
		},
	}
	f.add(cmd, configFlags, hostFlags, logFlags, []string{"run-dir"})
	output = cli.OutputFlag(cmd, "table", "json", "podman")
	// The default of --listen is the address of serve, which may run on this host. A session only
	// listens on request.
	cmd.Flags().Var((*address)(&listen), "listen", f.all.Lookup("listen").Usage)
	cmd.Flags().BoolVar(&once, "once", false, "exit after the first lists")
	return cmd
}

// session is serve in this process, without a kubelet. It never touches the kubelet, the links and the
// state of the host.
type session struct {
	flags *flags
	// options are the options of agent. Everything that it writes is in a temporary directory.
	options agent.Options
	// agent is nil until run starts it.
	agent *agent.Agent
	out   io.Writer
}

// try runs a session until use returns. listen is the address of the status page, empty for none.
// use runs in a goroutine of its own once the host was scanned; its context is cancelled if
// the agent fails. The result joins the error of the session with the error of removing its
// files.
func (f *flags) try(cmd *cobra.Command, listen string, use func(context.Context, *session) error) (err error) {
	// serve would serve the last good configuration instead of a broken one. A session has no
	// last good one, so it reports the problems here.
	_, err = f.load(f.config)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "generic-dp-try-")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	s, err := f.newSession(cmd, dir, listen)
	if err != nil {
		return err
	}
	return s.run(cmd.Context(), use)
}

// newSession prepares a session that writes below dir. Nothing runs yet. Without --log-level, it
// restricts the log to warnings, because the session itself prints the rest.
func (f *flags) newSession(cmd *cobra.Command, dir, listen string) (*session, error) {
	if !cmd.Flags().Changed("log-level") {
		f.level = "warn"
	}
	s := &session{
		flags:   f,
		options: f.options(cmd.ErrOrStderr()),
		out:     cmd.OutOrStdout(),
	}
	s.options.Paths = f.below(dir)
	// A state that cannot be read is ignored, because it is only readable for root. The rest of it is
	// about containers.
	if state, err := ledger.Load(f.paths.StateDir); err == nil {
		// A session shows the same IDs as an instance.
		err := ledger.Prepare(s.options.Paths.StateDir, ledger.Persisted{Decisions: state.Decisions})()
		if err != nil {
			return nil, err
		}
	}
	s.options.Listen = listen
	s.options.ShowsOnly = true
	s.options.InPod = false // the checks in a pod are about its mounts, which a session does not use
	// A missing directory means for the agent that runtimes cannot resolve CDI names. The session
	// should decide like serve on this host.
	if f.paths.WritesCDI() {
		err := os.Mkdir(s.options.Paths.CDIDir, 0o700)
		if err != nil {
			return nil, err
		}
	}
	if f.config != "-" && !manifest.IsManifest(f.config) {
		return s, nil
	}
	// The agent reads the configuration again, from files.
	m, _, err := f.readText(f.config)
	if err != nil {
		return nil, err
	}
	s.options.Config = filepath.Join(dir, "config")
	return s, writeFiles(s.options.Config, m.Files)
}

// run runs the agent until use returns. It ends use if the agent fails, and the agent when use
// has ended, with or without an error.
func (s *session) run(ctx context.Context, use func(context.Context, *session) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var err error
	s.agent, err = agent.New(s.options)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		// Run returns nil when stop or a signal cancels ctx.
		return s.agent.Run(ctx)
	})
	group.Go(func() error {
		defer stop()
		select {
		case <-s.agent.Settled():
			return use(ctx, s)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(tryFor):
			return fmt.Errorf("the first scan of the host takes longer than %s", tryFor)
		}
	})
	return group.Wait()
}

// below returns the paths of the flags, with everything that is written below dir. The
// directories of sysfs and /dev stay, since a session reads the real host. The other outputs have
// no default, and try has no flags for them.
func (f *flags) below(dir string) agent.Paths {
	p := f.paths
	p.RunDir = filepath.Join(dir, "run")
	p.StateDir = filepath.Join(dir, "state")
	p.CDIDir = filepath.Join(dir, "cdi")
	// CDI specs of the host stay visible, because the configuration may name their devices.
	if len(p.SpecDirs) == 0 {
		p.SpecDirs = []string{cdi.StaticDir, f.paths.CDIDir, p.CDIDir}
	}
	return p
}

// show prints all resources, and then changes until ctx is cancelled, unless once is set. A
// cancelled ctx is no error.
func (s *session) show(ctx context.Context, once bool) error {
	for _, name := range s.agent.Names() {
		s.printResource(ctx, name)
	}
	if once {
		return nil
	}
	s.printf("\nwatching for changes; stop with Ctrl-C\n")
	// Later changes are compared with the devices that were just printed.
	shown := s.devices(s.agent.Names()...)
	for {
		// The channel is taken before the devices: a change in between closes it, so none is
		// missed.
		changed := s.agent.Changed()
		now := s.devices(s.agent.Names()...)
		s.printChanges(shown, now)
		shown = now
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// writeFiles writes the files of a configuration to a new directory, which the agent of a session
// reads. It fails if the directory exists.
func writeFiles(dir string, files []config.File) error {
	err := os.Mkdir(dir, 0o700)
	if err != nil {
		return err
	}
	for _, file := range files {
		name := filepath.Base(file.Name) // the manifest chooses the name
		if !strings.HasSuffix(name, ".toml") {
			name = "config.toml" // standard input
		}
		err := os.WriteFile(filepath.Join(dir, name), file.Data, 0o600)
		if err != nil {
			return err
		}
	}
	return nil
}

// printf prints to the output of the command. Errors are ignored, since a session has no way to
// continue or end earlier because of them.
func (s *session) printf(format string, args ...any) { fmt.Fprintf(s.out, format, args...) }

// printResource prints a resource, its devices and what a container would get. It allocates one
// slot if one is healthy. A rejected request is part of the output, not an error.
func (s *session) printResource(ctx context.Context, name string) {
	entries := s.agent.Entries(name)
	s.printf("%s: %s", name, cli.Count(len(entries), "device"))
	healthy, slots := s.agent.Allocatable(name)
	if len(entries) > 0 {
		s.printf(", allocatable %d of %s\n", len(healthy), cli.Count(slots, "slot"))
	} else {
		s.printf(" on this host\n")
	}
	devices := s.devices(name)
	for _, e := range entries {
		s.printf("  %s  %s\n", e.Offer.ID, devices[name+" "+e.Offer.ID])
	}
	if len(healthy) == 0 {
		return
	}
	ids, response, err := s.agent.Allocate(ctx, name, 1)
	if err != nil {
		s.printf("  a container that requests 1 is rejected: %v\n", err)
		return
	}
	s.printf("  a container that requests 1 gets %s with\n", ids[0])
	s.printResponse(response)
}

// printChanges prints how the devices now differ from the devices that were shown last. Both maps
// are results of devices. Lines are sorted by resource and ID, and lost devices come last.
func (s *session) printChanges(shown, now map[string]string) {
	stamp := time.Now().Format("15:04:05.000")
	for _, key := range slices.Sorted(maps.Keys(now)) {
		before, isKnown := shown[key]
		if !isKnown {
			s.printf("%s new      %s  %s\n", stamp, key, now[key])
		} else if before != now[key] {
			s.printf("%s changed  %s  %s\n", stamp, key, now[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(shown)) {
		_, isListed := now[key]
		if !isListed {
			s.printf("%s left     %s\n", stamp, key)
		}
	}
}

// devices describes the devices of resources. The keys are "RESOURCE ID". The values are one line
// each, and equal if nothing visible has changed.
func (s *session) devices(resources ...string) map[string]string {
	all := map[string]string{}
	for _, name := range resources {
		for _, e := range s.agent.Entries(name) {
			d := status.NewDevice(e.Offer, e.Healthy, e.Reason)
			all[name+" "+d.ID] = describe(&d)
		}
	}
	return all
}

// describe describes a device in one line: its health, the reason, its slots if it has several,
// and its nodes.
func describe(d *status.Device) string {
	text := d.Health
	if d.Reason != "" {
		text += " (" + d.Reason + ")"
	}
	if d.Slots > 1 {
		text += ", " + cli.Count(d.Slots, "slot")
	}
	host := d.Host()
	if len(host) > 0 {
		text += "  " + strings.Join(host, " ")
	}
	return text
}
