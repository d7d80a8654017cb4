package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/kubelet"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
	"github.com/generic-dp/generic-dp/matchers"
)

// severity is how bad a finding is. Its values are an API: they are in the JSON output. Only
// problem affects the exit status.
type severity string

const (
	fine    severity = "ok"
	warning severity = "warning" // may be intended
	problem severity = "problem" // something will not work
)

// finding is the result of one check. The names of the JSON fields are an API.
type finding struct {
	// Check is the subject of the check, such as "kubelet" or the name of a flag. Several
	// findings may have the same subject.
	Check  string   `json:"check"`
	Status severity `json:"status"`
	Text   string   `json:"text"`
	// Fix is a command or an edit. It is empty if there is nothing to do.
	Fix string `json:"fix"`
}

// diagnosis is the output of doctor. Findings is never nil, and in the order of the checks.
type diagnosis struct {
	Findings []finding `json:"findings"`
}

// doctor examines a host. It changes nothing, so it may run while an instance serves. Each check
// is a method that adds at least one finding if it applies to the host.
type doctor struct {
	diagnosis
	*flags
	// root is the directory with the host's /etc, /proc and /run. In a pod it is a mount. The
	// paths of flags are not below it.
	root string
	// cfg is an empty configuration if the one on disk has problems.
	cfg *config.Config
	// isServing is set if an instance serves with these paths. Its registrations are expected then.
	isServing bool
}

// newDoctor returns the command doctor. The exit status is 1 if a finding is a problem. It
// reports what it cannot read as a finding, so that the other checks still run.
func newDoctor(f *flags) *cobra.Command {
	d := doctor{
		flags:     f,
		diagnosis: diagnosis{Findings: []finding{}},
		cfg:       &config.Config{},
	}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "check what serving needs on this host, and print how to fix problems",
		Long: `doctor checks the kubelet's sockets, the container runtime and its CDI support,
SELinux, inotify limits, and other plugins with the resources of the
configuration. It changes nothing. The exit status is 1 if there is a problem;
warnings may be intended. In a pod, mount the host's root and name it with --root.`,
		Args: cli.NoArgs,
	}
	f.add(cmd, configFlags, hostFlags, []string{"kubelet-dir", "pod-resources", "run-dir", "cdi-dir"})
	cmd.Flags().StringVar(&d.root, "root", "/", "root directory of the host, for its /etc, /proc and /run")
	diagnose := func(cmd *cobra.Command, _ []string) (cli.Reporter, error) {
		// A missing directory would look like a host without a runtime.
		if _, err := os.Stat(d.root); err != nil {
			return nil, fmt.Errorf("--root: %w", err)
		}
		d.examine(cmd.Context())
		if d.hasProblem() {
			return d.diagnosis, cli.ErrReported
		}
		return d.diagnosis, nil
	}
	return cli.Reports(cmd, diagnose, "json")
}

// Table writes the findings in the order of the checks. The fix is in lines of its own below its
// finding, because people copy commands.
func (d diagnosis) Table(w io.Writer, _ bool) error {
	for _, f := range d.Findings {
		cli.Hang(w, fmt.Sprintf("%-8s %-14s ", f.Status, f.Check), f.Text)
		if f.Fix != "" {
			fmt.Fprintf(w, "    fix: %s\n", f.Fix) // a terminal may wrap it, but a command stays whole
		}
	}
	return nil
}

// hasProblem reports whether a finding is a problem.
func (d diagnosis) hasProblem() bool {
	return slices.ContainsFunc(d.Findings, func(f finding) bool {
		return f.Status == problem
	})
}

// add records a finding. fix is empty if there is nothing to do, or if no fix is known.
func (d *doctor) add(status severity, check, fix, text string) {
	d.Findings = append(d.Findings, finding{
		Check:  check,
		Status: status,
		Text:   text,
		Fix:    fix,
	})
}

// ok records that a check found nothing to do.
func (d *doctor) ok(check, text string) { d.add(fine, check, "", text) }

// examine runs all checks. The configuration comes first, because other checks depend on what it
// needs: for example, a host without resources for CDI needs no CDI directory. Queries of sockets
// have timeouts of their own.
func (d *doctor) examine(ctx context.Context) {
	d.isServing = agent.Serving(d.paths)
	d.configuration(ctx)
	d.kubelet()
	d.others(ctx)
	d.runtime()
	d.cdiDirectory()
	d.seLinux()
	d.inotify()
}

// configuration checks --config, and what it selects on this host. It sets d.cfg. If the
// configuration has problems, only the first line of the error is shown: check shows all of them.
func (d *doctor) configuration(ctx context.Context) {
	const check = "configuration"
	cfg, err := d.load(d.config)
	isMissing := errors.Is(err, fs.ErrNotExist)
	// The command that is recommended reads the same configuration.
	isNamed := d.all.Changed("config")
	named := ""
	if isNamed {
		named = " --config " + cli.ShellQuote(d.config)
	}
	if isMissing && d.isServing && !isNamed {
		d.add(warning, check, "name a copy with --config to check it here",
			"none at "+d.config+": the instance that serves may have another one, such as the ConfigMap of its pod")
		return
	}
	if err != nil {
		fix := "generic-dp check" + named
		switch {
		case isMissing && isNamed:
			fix = "check the path"
		case isMissing:
			fix = "generic-dp init writes one"
		}
		firstLine, _, _ := strings.Cut(err.Error(), "\n")
		d.add(problem, check, fix, firstLine)
		return
	}
	d.cfg = cfg
	view, err := d.scan(ctx, cfg)
	if err != nil {
		d.add(problem, "host", "", err.Error())
		return
	}
	// Resources without devices and unusable devices are warnings: the configuration may be for
	// other nodes as well, and a device may be absent for now.
	devices, unusable := countDevices(view)
	text := cli.Count(len(cfg.Resources), "resource") + ", " + cli.Count(devices, "device")
	isEmpty := func(m matchers.Offered) bool {
		return len(m.Offers) == 0
	}
	switch {
	case unusable > 0:
		d.add(warning, check, "generic-dp devices"+named, fmt.Sprintf("%s, and %d that cannot be used", text, unusable))
	case slices.ContainsFunc(view.Matched.Resources, isEmpty):
		d.add(warning, check, "generic-dp devices"+named, text+", and a resource without a device on this host")
	default:
		d.ok(check, text)
	}
	for _, p := range view.Problems {
		d.add(warning, "host", "", p.Subject+": "+p.Reason)
	}
}

// others finds other plugins with the resources of the configuration, and other CDI specs with
// their kinds. It adds nothing if there is none. The kubelet accepts a second plugin without an
// error, so that the conflict is only visible in the devices that containers get.
func (d *doctor) others(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	// A kubelet that does not answer is a finding of podResources.
	listed, err := kubelet.NewPodResources(d.paths.PodResources, nil).Allocatable(ctx)
	isKnown := err == nil
	kinds := d.paths.ForeignSpecs().Read().Kinds
	for _, r := range d.cfg.Resources {
		// While an instance serves, the listed devices are its own.
		isOffered := isKnown && !d.isServing && len(listed[r.Name]) > 0
		if isOffered {
			d.add(problem, "other plugins", "remove that plugin, or rename the resource",
				r.Name+" is offered by another plugin: the kubelet uses the plugin that registers last")
		}
		file, isUsed := kinds[r.Name]
		if isUsed {
			d.add(problem, "CDI kind", "rm "+file, fmt.Sprintf("%s is also the CDI kind of %s", r.Name, file))
		}
	}
}

// inotify checks that an inotify instance and a watch are available: a user only has a limited
// number of them (inotify(7)). Other programs of the same user, such as container runtimes and
// log collectors, use them as well.
func (d *doctor) inotify() {
	const check = "inotify"
	const fix = "sysctl -w fs.inotify.max_user_instances=1024 fs.inotify.max_user_watches=524288"
	// serve works without inotify, so the effect is a delay.
	const effect = ": changes are only noticed by a scan every minute"
	// EMFILE means that the user has no instance left, or the process no file (inotify_init(2)).
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		d.add(problem, check, fix, err.Error()+effect)
		return
	}
	defer unix.Close(fd)
	_, err = unix.InotifyAddWatch(fd, d.paths.Dev, unix.IN_CREATE)
	// inotify_add_watch(2) returns ENOSPC at the limit of watches. Other errors are about the
	// path, which the scan reports.
	if errors.Is(err, syscall.ENOSPC) {
		d.add(problem, check, fix, "all watches are in use"+effect)
		return
	}
	d.ok(check, "instances and watches are available")
}
