// Package genericdp runs the device plugin and DRA driver inside another program, such as a
// Kubernetes distribution or an appliance, in the same way as the command generic-dp serve.
//
//	import genericdp "github.com/generic-dp/generic-dp"
//
//	options := genericdp.DefaultOptions()
//	options.ConfigText = []byte(`…`)
//	err := genericdp.Run(ctx, options)
//
// This package is the only API for other programs: CHANGELOG.md announces its changes, and
// all other packages of the module may change at any time. For a smaller binary, build with the
// tags of the Makefile.
//
// # What a program gets
//
// [Run] does everything that serve does: the device plugin, the DRA driver for resources with
// api = "dra", links and CDI specs that follow devices, health checks, and the status page, metrics
// and probes on Options.Listen. Nothing is global. Several instances may run in one process, each
// with its own RunDir, StateDir and Listen. If two instances on one host have the same RunDir, one
// of them serves, and the other one waits for its end, as in a rolling update.
//
// The embedding program decides about everything that concerns the whole process. Run handles no
// signals: it ends with its context, and a value on Options.Reload reads the configuration again.
// It also leaves GOMAXPROCS and the memory limit alone; serve runs on two CPUs and keeps its heap
// within the limit of its cgroup.
//
// When Run has returned, links, CDI specs and state are still there, so that containers can restart
// during an upgrade. If another program removes the distribution, it has to remove RunDir, StateDir
// and the files generic-dp_* in CDIDir, or call generic-dp clean.
//
// # What the host must provide
//
// Run needs uid 0 and no capabilities. On the host, the default paths are right. In a container,
// mount these paths of the host and set the options:
//
//   - KubeletDir: /var/lib/kubelet/device-plugins, writable.
//   - PodResources: the directory of /var/lib/kubelet/pod-resources/kubelet.sock.
//   - PluginsRegistry: /var/lib/kubelet/plugins_registry, writable, only for api = "dra".
//   - RunDir: any directory below /run, writable, at the same path: container runtimes resolve its
//     links on the host.
//   - StateDir: any directory that survives a reboot, writable.
//   - CDIDir: /var/run/cdi, writable.
//   - Dev: /dev, read-only, and not at /dev in a container, since the runtime writes there.
//   - Sysfs: /sys, read-only.
//   - Cgroup: /sys/fs/cgroup, read-only. It shows when a pod has ended.
//
// The kernel only sends events for devices to network namespaces of the host's user namespace.
// Without them, the host is scanned every minute, and a removed device stays Healthy until then.
//
// For api = "dra", APIServer, APIServerCA and APIServerToken name the API server and a service
// account with the rights that the chart grants. In a pod, the defaults are right.
//
// Options.Allow decides what the configuration may do to the host. Its default is nothing: write
// access to the configuration does not grant root.
package genericdp

import (
	"context"
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
// that corresponds to an option. It also ends with an error if somebody removes RunDir while it serves:
// another instance may serve then.
//
// Several instances may run in one process if each has its own RunDir, StateDir and Listen.
func Run(ctx context.Context, o Options) error {
	options, err := o.internal()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a, err := agent.New(options)
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

// Check returns why a configuration is not valid. Its text has all problems, each with its line, column and
// place, and a hint if the fix is known. It does not read the host. What a configuration needs in Options.Allow
// is not a problem: Run refuses it if it is missing.
func Check(text []byte) error {
	_, err := config.Parse(config.File{
		Name: "config.toml",
		Data: text,
	})
	return err
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
