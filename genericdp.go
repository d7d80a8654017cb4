// Package genericdp runs the device plugin and DRA driver inside another program, such as a
// Kubernetes distribution that ships it. It is what the command generic-dp serve runs.
//
//	import genericdp "github.com/generic-dp/generic-dp"
//
//	options := genericdp.DefaultOptions()
//	options.ConfigText = []byte(`…`)
//	err := genericdp.Run(ctx, options)
//
// This package is the only API for other programs: CHANGELOG.md announces its changes, and
// all other packages of the module may change at any time. The page docs/embedding.md says
// what a program gets, and what the host must provide.
package genericdp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// Run finds the devices that the configuration describes and serves them to the kubelet until
// ctx is cancelled, which is no error. An error at the start names the flag of generic-dp serve
// that corresponds to an option.
//
// Several instances may run in one process if each has its own RunDir, StateDir and Listen.
func Run(ctx context.Context, o Options) error {
	options, err := o.internal()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a, err := agent.New(ctx, options)
	if err != nil {
		return err
	}
	var following sync.WaitGroup
	following.Go(func() {
		o.follow(ctx, a)
	})
	err = a.Run(ctx)
	stop()
	following.Wait()
	return err
}

// follow reports to the embedding program, and does what it requests, until ctx is cancelled.
func (o Options) follow(ctx context.Context, a *agent.Agent) {
	reload := o.Reload
	settled := a.Settled()
	for {
		select {
		case <-ctx.Done():
			return
		case _, isOpen := <-reload:
			if isOpen {
				a.Reload()
			} else {
				reload = nil // a closed channel would be ready for ever
			}
		case <-settled:
			settled = nil
			if o.Settled != nil {
				o.Settled()
			}
		}
	}
}

// internal returns the options of the agent.
func (o Options) internal() (agent.Options, error) {
	options := agent.Options{
		Config:     o.Config,
		ConfigText: o.ConfigText,
		Paths: agent.Paths{
			KubeletDir:    o.KubeletDir,
			Registry:      o.PluginsRegistry,
			PodResources:  o.PodResources,
			Sysfs:         o.Sysfs,
			Cgroup:        o.Cgroup,
			Dev:           o.Dev,
			RunDir:        o.RunDir,
			StateDir:      o.StateDir,
			CDIDir:        o.CDIDir,
			DeviceInfoDir: o.DeviceInfoDir,
			NFDDir:        o.NFDDir,
		},
		NodeName: o.NodeName,
		Listen:   o.Listen,
		CDIOnly:  o.CDIOnly,
		KubeAPI: kubeapi.Config{
			Server: o.APIServer,
			CA:     o.APIServerCA,
			Token:  o.APIServerToken,
		},
		InPod:   isInPod(),
		Version: o.Version,
		Log:     o.Log,
	}
	if err := o.checkRequired(); err != nil {
		return options, err
	}
	list := strings.Join(o.Allow, ",")
	if err := options.Allow.Set(list); err != nil {
		return options, fmt.Errorf("--allow: %w", err)
	}
	options.Allow.Domains = o.Domains
	return options, nil
}

// checkRequired returns an error for an empty path without which nothing works. The zero Options
// have only such paths.
func (o Options) checkRequired() error {
	required := []struct{ flag, value string }{
		{"config", o.Config + string(o.ConfigText)},
		{"sysfs", o.Sysfs},
		{"dev", o.Dev},
		{"run-dir", o.RunDir},
		{"state-dir", o.StateDir},
		{"kubelet-dir", o.KubeletDir},
	}
	for _, r := range required {
		if r.value == "" {
			return fmt.Errorf("--%s must not be empty", r.flag)
		}
	}
	return nil
}

// isInPod reports whether this program runs in a pod: the kubelet sets the variable in each.
func isInPod() bool {
	return os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// Problem is a mistake in a configuration.
type Problem struct {
	// Line and Column are the position of the key, from 1. They are 0 if no key is wrong.
	Line   int
	Column int
	// Place is the resource and the key: `resource 2 ("gpu"): count`.
	Place string
	// Text is the value and the rule that it violates.
	Text string
	// Hint is how to fix it, empty if that is unknown.
	Hint string
}

// String formats a problem as one line, and a second line with the hint.
func (p Problem) String() string {
	return config.Problem{
		Line:   p.Line,
		Column: p.Column,
		Place:  p.Place,
		Text:   p.Text,
		Hint:   p.Hint,
	}.String()
}

// Check returns all problems of a configuration, none if it is valid. It does not read the host.
// What a configuration needs in Options.Allow is not a problem: Run refuses it if it is
// missing. The error says why the text could not be checked.
func Check(text []byte) ([]Problem, error) {
	_, err := config.Parse(config.File{
		Name: "config.toml",
		Data: text,
	})
	if err == nil {
		return nil, nil
	}
	var found config.Problems
	if !errors.As(err, &found) {
		return nil, err
	}
	problems := make([]Problem, len(found))
	for i, p := range found {
		problems[i] = Problem{
			Line:   p.Line,
			Column: p.Column,
			Place:  p.Place,
			Text:   p.Text,
			Hint:   p.Hint,
		}
	}
	return problems, nil
}

// Version is the version of this module in the running program, such as "v0.1.0". It is
// "unknown" if the program was built without versions of its modules.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	const path = "github.com/generic-dp/generic-dp"
	for _, module := range append(info.Deps, &info.Main) {
		isReleased := module.Version != "" && module.Version != "(devel)"
		if module.Path == path && isReleased {
			return module.Version
		}
	}
	return "unknown"
}
