package main

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/evict"
	"github.com/generic-dp/generic-dp/internal/kubeapi"
	"github.com/generic-dp/generic-dp/metrics"
)

func newEvict(f *flags) *cobra.Command {
	o := evict.Options{After: 30 * time.Second, PerMinute: 10}
	cmd := &cobra.Command{
		Use:   "evict",
		Short: "evict pods whose devices are unhealthy, in a pod of its own",
		Long: `evict evicts the pods of a cluster that hold unhealthy devices, of this or any
other device plugin, so that they are scheduled anew. The kubelets have to be of
Kubernetes 1.36 or newer. It runs once in a cluster, in a pod whose service
account may watch pods, evict them and create events: evict.enabled in the
chart's values.

PodDisruptionBudgets are honoured. A pod with the annotation
` + evict.Annotation + `: "false" stays, and a device that comes and goes
evicts one pod in ten minutes at most.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.After < time.Second:
				return usageError{errors.New("--after: want at least 1s")}
			case o.PerMinute < 1:
				return usageError{errors.New("--per-minute: want at least 1")}
			case os.Getenv("KUBERNETES_SERVICE_HOST") == "":
				return errors.New("no API server: want to run in a pod\n  hint: evict.enabled = true in the chart's values makes a Deployment")
			}
			if f.listen != "" {
				l, err := metrics.Listen(f.listen)
				if err != nil {
					return err
				}
				o.Listener = l
			}
			limitMemory()
			o.Log = f.logger(cmd.ErrOrStderr())
			o.Log.Info("starting", "version", version, "after", o.After, "per_minute", o.PerMinute, "opt_in", o.OptIn)
			defer o.Log.Info("stopped")
			return evict.Run(cmd.Context(), kubeapi.New(kubeapi.InCluster()), o)
		},
	}
	cmd.Flags().AddFlagSet(f.pick("listen"))
	cmd.Flags().DurationVar(&o.After, "after", o.After, "how long a device is unhealthy before the pod that holds it is evicted")
	cmd.Flags().IntVar(&o.PerMinute, "per-minute", o.PerMinute, "most evictions in a minute")
	cmd.Flags().BoolVar(&o.OptIn, "opt-in", false, `evict only pods with the annotation `+evict.Annotation+`: "true"`)
	return cmd
}
