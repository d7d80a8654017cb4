package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/generic-dp/generic-dp/cdi"
	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/kubelet/podresources"
)

// finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warning or problem
	Text   string `json:"text"`
	Fix    string `json:"fix"` // a command or an edit; empty where nothing is to be done
}

// diagnosis is the output of doctor.
type diagnosis struct {
	Findings []finding `json:"findings"`
}

// doctor examines a host.
type doctor struct {
	diagnosis
	*flags
	root    string         // of the host's /etc, /proc and /run
	cfg     *config.Config // empty if it has problems
	serving bool           // an instance serves
}

func newDoctor(f *flags) *cobra.Command {
	d := doctor{flags: f, diagnosis: diagnosis{Findings: []finding{}}, cfg: &config.Config{}}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "check what serving needs on this host, with the command that mends it",
		Long: `doctor checks the kubelet's directories and sockets, the container runtime and its
CDI support, SELinux, inotify limits, other plugins with the resources of the
configuration, and leftovers of earlier runs. It changes nothing. The exit
status is 1 if there is a problem; warnings may be intended. In a pod, mount the
host's root and name it with --root.`,
		Args: noArgs,
	}
	cmd.Flags().AddFlagSet(f.pick("kubelet-dir", "plugins-registry", "pod-resources", "run-dir", "cdi-dir", "allow", "domains"))
	cmd.Flags().StringVar(&d.root, "root", "/", "root directory of the host, for its /etc, /proc and /run")
	return reports(cmd, func(cmd *cobra.Command, _ []string) (reporter, error) {
		d.examine(cmd.Context())
		if slices.ContainsFunc(d.Findings, func(f finding) bool { return f.Status == "problem" }) {
			return d.diagnosis, errReported
		}
		return d.diagnosis, nil
	}, "json", "yaml")
}

func (d diagnosis) table(w io.Writer, _ bool) error {
	for _, f := range d.Findings {
		fmt.Fprintf(w, "%-8s %-14s %s\n", f.Status, f.Check, f.Text)
		if f.Fix != "" {
			fmt.Fprintf(w, "%-23s fix: %s\n", "", f.Fix)
		}
	}
	return nil
}

func (d *doctor) add(status, check, fix, format string, args ...any) {
	d.Findings = append(d.Findings, finding{check, status, fmt.Sprintf(format, args...), fix})
}

// examine runs all checks.
func (d *doctor) examine(ctx context.Context) {
	d.serving = agent.Serving(d.paths)
	d.configuration(ctx)
	d.kubelet()
	d.dra()
	d.others(ctx)
	d.runtime()
	d.seLinux()
	d.inotify()
	d.writable("run-dir", d.paths.RunDir)
	d.writable("state-dir", d.paths.StateDir)
	d.writable("cdi-dir", d.paths.CDIDir)
	d.leftovers()
}

// configuration checks --config, and what it selects here.
func (d *doctor) configuration(ctx context.Context) {
	const name = "configuration"
	cfg, err := d.load(d.config)
	if err != nil {
		fix := "generic-dp check " + d.config
		if errors.Is(err, fs.ErrNotExist) {
			fix = fmt.Sprintf("mkdir -p %[1]s && generic-dp init > %[1]s/config.toml", d.config)
		}
		first, _, _ := strings.Cut(err.Error(), "\n")
		d.add("problem", name, fix, "%s", first)
		return
	}
	d.cfg = cfg
	view, err := d.scan(ctx, cfg)
	if err != nil {
		d.add("problem", "host", "", "%v", err)
		return
	}
	devices, empty := 0, []string{}
	for _, m := range view.Matched.Resources {
		if devices += len(m.Offers); len(m.Offers) == 0 {
			empty = append(empty, m.Name)
		}
	}
	d.add("ok", name, "", "%s, %s", count(len(cfg.Resources), "resource"), count(devices, "device"))
	for _, name := range empty {
		d.add("warning", "devices", "generic-dp explain "+name, "%s has none on this host", name)
	}
	for _, p := range view.Problems {
		d.add("warning", "host", "", "%s: %s", p.Subject, p.Reason)
	}
}

// dial reports whether something listens on a socket.
func dial(path string) error {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// otherKubelets are the directories of distributions that keep the kubelet elsewhere.
var otherKubelets = []string{"/var/lib/k0s/kubelet", "/var/snap/microk8s/common/var/lib/kubelet", "/var/lib/rancher/k3s/agent/kubelet"}

func (d *doctor) kubelet() {
	socket := filepath.Join(d.paths.KubeletDir, "kubelet.sock")
	switch err := dial(socket); {
	case err == nil:
		d.add("ok", "kubelet", "", "%s answers", socket)
	case errors.Is(err, fs.ErrNotExist):
		fix := "systemctl start kubelet; a host without Kubernetes needs generic-dp cdi alone"
		for _, dir := range otherKubelets {
			if _, err := os.Stat(filepath.Join(d.root, dir, "device-plugins")); err == nil {
				fix = fmt.Sprintf("--kubelet-dir %[1]s/device-plugins --pod-resources %[1]s/pod-resources/kubelet.sock", dir)
			}
		}
		d.add("problem", "kubelet", fix, "no socket %s", socket)
	default:
		d.add("problem", "kubelet", "systemctl restart kubelet", "%s: %v", socket, errors.Unwrap(err))
	}
	if err := dial(d.paths.PodResources); err != nil {
		d.add("warning", "pod resources", "name the socket with --pod-resources", "%s: holders of devices are unknown: %v", d.paths.PodResources, err)
		return
	}
	d.add("ok", "pod resources", "", "%s answers", d.paths.PodResources)
}

// dra checks what resources by dynamic resource allocation need on the host.
func (d *doctor) dra() {
	_, err := os.Stat(d.paths.Registry)
	switch {
	case !slices.ContainsFunc(d.cfg.Resources, func(r config.Resource) bool { return r.API == config.APIDRA }):
	case err != nil:
		d.add("problem", "DRA", "name the kubelet's plugins_registry with --plugins-registry; in the chart: dra.enabled=true", "%v", err)
	case d.nodeName == "":
		d.add("problem", "DRA", "--node-name", `api = "dra" needs the name of the node`)
	default:
		d.add("ok", "DRA", "", "%s is there; the API server is not asked", d.paths.Registry)
	}
}

// others finds who else has the resources or the CDI kinds of the configuration.
func (d *doctor) others(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	listed, err := podresources.New(d.paths.PodResources, nil).Allocatable(ctx, time.Time{})
	kinds := d.paths.ForeignSpecs().Read().Kinds
	for _, r := range d.cfg.Resources {
		if len(listed[r.Name]) > 0 && err == nil && !d.serving {
			d.add("problem", "other plugins", "remove that plugin, or rename the resource", "%s is offered by another plugin: the last one that registers has it", r.Name)
		}
		if file, taken := kinds[r.Name]; taken {
			d.add("problem", "CDI kind", "rm "+file, "%s is that of %s too", r.Name, file)
		}
	}
}

// runtimes are the sockets, or programs, and configuration files of container runtimes.
var runtimes = []struct{ name, path, config string }{
	{"containerd", "/run/containerd/containerd.sock", "/etc/containerd/config.toml"},
	{"containerd of k3s", "/run/k3s/containerd/containerd.sock", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"},
	{"CRI-O", "/run/crio/crio.sock", "/etc/crio/crio.conf"},
	{"docker", "/run/docker.sock", "/etc/docker/daemon.json"},
	{"podman", "/usr/bin/podman", ""},
}

func (d *doctor) runtime() {
	usesCDI := slices.ContainsFunc(d.cfg.Resources, func(r config.Resource) bool { return r.Container.CDI })
	found := false
	for _, r := range runtimes {
		if _, err := os.Stat(filepath.Join(d.root, r.path)); err != nil {
			continue
		}
		found = true
		text, _ := os.ReadFile(filepath.Join(d.root, r.config))
		settings := strings.Join(strings.Fields(string(text)), "")
		status, fix, about := "warning", fmt.Sprintf("set enable_cdi = true in %s, and restart the runtime", r.config), ""
		switch {
		case strings.Contains(settings, "enable_cdi=false"):
			about = " does not resolve CDI names"
			if usesCDI {
				status = "problem"
			}
		case strings.Contains(settings, "version=2") && !strings.Contains(settings, "enable_cdi=true") && usesCDI:
			about = " before 2.0 resolves CDI names if told to"
		default:
			status, fix = "ok", ""
		}
		d.add(status, "runtime", fix, "%s", r.name+about)
	}
	if !found {
		d.add("warning", "runtime", "in a pod: mount the host's root, and name it with --root", "no container runtime found")
	}
	if dir := filepath.Clean(d.paths.CDIDir); usesCDI && !slices.Contains([]string{"/var/run/cdi", "/run/cdi", cdi.StaticDir}, dir) {
		d.add("warning", "CDI directory", "--cdi-dir /var/run/cdi", "runtimes read %s only if told to", dir)
	}
}

func (d *doctor) seLinux() {
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(d.paths.Sysfs, "fs/selinux", name))
		return strings.TrimSpace(string(text))
	}
	switch {
	case read("enforce") != "1":
		d.add("ok", "SELinux", "", "not enforcing")
	case strings.HasPrefix(read("booleans/container_use_devices"), "1"):
		d.add("ok", "SELinux", "", "enforcing, containers may use devices")
	default:
		d.add("warning", "SELinux", "setsebool -P container_use_devices 1", "enforcing: containers without a type of their own can't open devices")
	}
}

// inotify makes an inotify instance: a user has few of them.
func (d *doctor) inotify() {
	const fix = "sysctl -w fs.inotify.max_user_instances=1024 fs.inotify.max_user_watches=524288"
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		d.add("problem", "inotify", fix, "%v: changes are noticed by a scan every minute only", err)
		return
	}
	defer unix.Close(fd)
	if _, err := unix.InotifyAddWatch(fd, d.paths.Dev, unix.IN_CREATE); errors.Is(err, syscall.ENOSPC) {
		d.add("problem", "inotify", fix, "all watches are in use: changes are noticed by a scan every minute only")
		return
	}
	d.add("ok", "inotify", "", "instances and watches are left")
}

func (d *doctor) writable(flag, dir string) {
	parent, err := dir, unix.Access(dir, unix.W_OK|unix.X_OK)
	for errors.Is(err, fs.ErrNotExist) && parent != filepath.Dir(parent) { // serve makes it there
		parent = filepath.Dir(parent)
		err = unix.Access(parent, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		d.add("problem", flag, "run as root, or name another directory with --"+flag, "%s can't be written: %v", parent, err)
		return
	}
	d.add("ok", flag, "", "%s", dir)
}

// leftovers finds links, health directories and specs that no instance maintains.
func (d *doctor) leftovers() {
	if d.serving {
		d.add("ok", "instance", "", "one is serving")
		return
	}
	var left []string
	for _, glob := range []string{filepath.Join(d.paths.RunDir, "links", "*"), filepath.Join(d.paths.RunDir, "health", "*"), filepath.Join(d.paths.CDIDir, "generic-dp_*")} {
		found, _ := filepath.Glob(glob)
		left = append(left, found...)
	}
	if len(left) == 0 {
		d.add("ok", "leftovers", "", "none")
		return
	}
	d.add("warning", "leftovers", "generic-dp clean, unless generic-dp serve starts again", "no instance is serving, and %s left: %s", count(len(left), "link or spec"), left[0])
}
