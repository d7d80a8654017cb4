package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/generic-dp/generic-dp/metrics"
	"github.com/generic-dp/generic-dp/plugin"
)

// manifest says by flag what of the DaemonSet it is given by, and the value of the
// chart that makes it.
var manifest = map[string]string{
	"config":      `volume "config" of the DaemonSet: the ConfigMap wants a key that ends in .toml; config or existingConfigMap in the chart's values`,
	"kubelet-dir": `volume "device-plugins" of the DaemonSet, paths.devicePlugins in the chart's values, is the kubelet's directory on the host`,
	"run-dir":     `volume "run" of the DaemonSet, paths.run in the chart's values, is a hostPath that can be written, at the same path in the pod`,
	"state-dir":   `volume "state" of the DaemonSet, paths.state in the chart's values, is a hostPath that can be written`,
	"cdi-dir":     `volume "cdi" of the DaemonSet: cdi.enabled = true in the chart's values mounts cdi.directory, which container.cdi needs`,
	"listen":      `argument --listen and port "metrics" of the DaemonSet, listen.port in the chart's values: with hostNetwork the port has to be free on the node`,
}

// hints are for a program that runs in no pod.
var hints = map[string]string{
	"config":      "write one, or name another file or directory with --config; generic-dp check reports what is wrong with it",
	"kubelet-dir": "it is where the kubelet keeps kubelet.sock; distributions may have it elsewhere, such as /var/snap/microk8s/common/var/lib/kubelet/device-plugins",
	"cdi-dir":     "container.cdi needs a directory that container runtimes read CDI specs from, /var/run/cdi or /etc/cdi as a rule",
	"listen":      "another instance may be serving: generic-dp status asks it; --listen names another address, and an empty one is none",
}

// hinted is an error with what to do about it on a line of its own.
type hinted struct {
	error
	hint string
}

func (h hinted) Error() string { return h.error.Error() + "\n  hint: " + h.hint }
func (h hinted) Unwrap() error { return h.error }

// withHint adds to an error about a flag what to change: in a pod the part of the
// manifest, since nobody sets flags there.
func withHint(err error, flag string, inPod bool) error {
	hint := hintFor(flag, inPod)
	if err == nil || hint == "" {
		return err
	}
	return hinted{err, hint}
}

func hintFor(flag string, inPod bool) string {
	if inPod {
		return manifest[flag]
	}
	return hints[flag]
}

// prepare makes what has to be there before anything is served.
func (o Options) prepare() error {
	p := o.Paths
	for _, d := range []struct{ flag, dir string }{{"state-dir", p.StateDir}, {"run-dir", p.RunDir}} {
		if err := writable(d.flag, d.dir); err != nil {
			return withHint(err, d.flag, o.InPod)
		}
	}
	if o.CDIOnly {
		return nil
	}
	if err := plugin.CheckDir(p.KubeletDir); err != nil {
		return err
	}
	if _, err := os.Stat(p.KubeletDir); o.InPod && errors.Is(err, fs.ErrNotExist) {
		// What is not mounted now never will be.
		return withHint(fmt.Errorf("--kubelet-dir: %w", err), "kubelet-dir", o.InPod)
	}
	return withHint(checkRunDir(p.RunDir, o.InPod), "run-dir", o.InPod)
}

// listen takes the address of metrics and status.
func (a *Agent) listen() (err error) {
	if a.options.Listen == "" {
		return nil
	}
	a.listener, err = metrics.Listen(a.options.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return withHint(err, "listen", a.options.InPod)
	}
	if err == nil {
		a.metrics = metrics.New(a)
	}
	return err
}
