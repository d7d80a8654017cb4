// Command generic-dp-evict evicts the pods of a cluster whose devices are Unhealthy, so that their
// controllers replace them on healthy ones. It reads allocatedResourcesStatus of pods, which kubelets
// since 1.36 fill in from the health that any device plugin or DRA driver reports.
//
// It runs once in a cluster, not on each node: evict.enabled in the values of the chart creates a
// Deployment. There is no leader election: a second instance would evict pods that are already
// terminating, which changes nothing. See docs/pods.md.
//
// Two goroutines share a tracker: one follows a watch of all pods and records their devices, and one
// sleeps until the tracker says that an eviction is due.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/sys/limits"
)

// version is set by the linker: -X main.version=v1.2.3. A plain go build leaves it "unknown".
var version = "unknown"

// usage is printed before the flags.
const usage = `generic-dp-evict evicts the pods of a cluster that hold unhealthy devices of any device plugin or
DRA driver, so that they are scheduled again. It needs kubelets of Kubernetes 1.36 or newer. A
cluster needs one instance, in a pod whose service account may watch pods, evict them and create
events: evict.enabled in the chart's values.

PodDisruptionBudgets are honoured. A pod with the annotation
` + annotation + `: "false" is never evicted, and a device that appears
and disappears evicts at most one pod in ten minutes.

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stderr)
	stop()
	os.Exit(code)
}

// run is the whole program. It returns the exit status: 0 after a signal or for --help, 1 for a
// failure, and 2 for an invalid command line.
func run(ctx context.Context, args []string, stderr io.Writer) int {
	o := options{}
	log := slog.HandlerOptions{}
	var level slog.Level
	var listen, format string
	flags := flag.NewFlagSet("generic-dp-evict", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	flags.DurationVar(&o.After, "after", 30*time.Second, "how long a device must be unhealthy before its pod is evicted, at least 1s")
	flags.IntVar(&o.PerMinute, "per-minute", 10, "maximum number of evictions in a minute, at least 1")
	flags.BoolVar(&o.OptIn, "opt-in", false, "evict only pods with the annotation "+annotation+`: "true"`)
	flags.StringVar(&listen, "listen", ":9418", "address of /metrics, /healthz and /readyz; empty for none")
	flags.StringVar(&format, "log-format", "text", "text or json")
	flags.TextVar(&level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return 2
	}
	if err := check(flags, o, format); err != nil {
		fmt.Fprintf(stderr, "error: %v\n  hint: see generic-dp-evict --help\n", err)
		return 2
	}
	log.Level = level
	o.Log = slog.New(slog.NewTextHandler(stderr, &log))
	if format == "json" {
		o.Log = slog.New(slog.NewJSONHandler(stderr, &log))
	}
	if err := serve(ctx, o, listen); err != nil {
		fmt.Fprintf(stderr, "error: %v\n", err)
		return 1
	}
	return 0
}

// check returns the first problem of the command line. Zero would evict a pod for a device that is
// only unhealthy for a moment, or evict nothing.
func check(flags *flag.FlagSet, o options, format string) error {
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.After < time.Second:
		return errors.New("--after: want at least 1s")
	case o.PerMinute < 1:
		return errors.New("--per-minute: want at least 1")
	case format != "text" && format != "json":
		return errors.New("--log-format: want text or json")
	}
	return nil
}

// serve evicts pods until ctx is cancelled.
func serve(ctx context.Context, o options, listen string) error {
	if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return errors.New("no API server: generic-dp-evict only runs in a pod\n  hint: evict.enabled = true in the chart's values creates a Deployment")
	}
	// An unusable address is an error at once, before a pod is evicted.
	if listen != "" {
		l, err := status.Listen(listen)
		if err != nil {
			return err
		}
		o.Listener = l
	}
	limits.CPUs()
	limits.Memory()
	o.Log.Info("starting", "version", version, "after", o.After, "per_minute", o.PerMinute, "opt_in", o.OptIn)
	defer o.Log.Info("stopped")
	return evict(ctx, kubeapi.New(kubeapi.InCluster()), o)
}
