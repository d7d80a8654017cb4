package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/tools/importer"
)

func newImport(f *flags) *cobra.Command {
	o := importer.Options{Format: importer.Auto}
	check := false
	from := string(o.Format)
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "convert the configuration of another device plugin",
		Long: `import converts the configuration of another device plugin to TOML. Comments and
warnings name everything that has no equivalent.

FILE is a configuration of generic-device-plugin (squat), smarter-device-manager
(smarter), sriov-network-device-plugin (sriov) or k8s-rdma-shared-dev-plugin (rdma),
permittedHostDevices of KubeVirt (kubevirt), a Configuration of Akri with rules of
udev (akri), or sharing of NVIDIA's device plugin (nvidia); or YAML that contains one
anywhere, in texts too: a ConfigMap, the arguments of a container, a command line, values
of a Helm chart, Flux and Argo CD objects, patches and variables, but no unrendered
templates; - is standard input.`,
		Args: wantArgs(1, 1, "want one FILE, or - for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Format = importer.Format(from)
			name, data, err := readInput(args[0])
			if err != nil {
				return err
			}
			cfg, result, err := convert(cmd, name, data, o)
			if err != nil || !check {
				return err
			}
			return f.compare(cmd.Context(), cmd.ErrOrStderr(), cfg, result)
		},
	}
	var formats []string
	for _, f := range importer.Formats() {
		formats = append(formats, string(f))
	}
	cmd.Flags().Var(word{&from, formats}, "from", "format of FILE: "+strings.Join(formats, ", "))
	cmd.Flags().BoolVar(&check, "check", false, "list the devices of this host, or of --sysfs, that the result offers, and where generic-device-plugin and smarter-device-manager differ")
	cmd.Flags().StringVar(&o.Domain, "domain", "", "domain of resource names (default that of FILE or of the other plugin)")
	return cmd
}

// convert prints the converted input, after validating it: a conversion that does not
// load is a bug.
func convert(cmd *cobra.Command, file string, data []byte, o importer.Options) (*config.Config, *importer.Result, error) {
	result, err := importer.Convert(file, data, o)
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), strings.TrimRight(err.Error(), "\n"))
		return nil, nil, errReported
	}
	cfg, err := config.Parse(config.File{Name: "imported.toml", Data: result.TOML})
	if err != nil {
		return nil, nil, fmt.Errorf("the conversion of %s is invalid, which is a bug of generic-dp: please report it with that file\n%w\n%s", file, err, result.TOML)
	}
	for _, w := range result.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
	}
	_, err = cmd.OutOrStdout().Write(result.TOML)
	return cfg, result, err
}

// compare lists what the converted configuration offers on this host, and how that differs
// from what the other plugin does. Standard output is for the configuration.
func (f *flags) compare(ctx context.Context, w io.Writer, cfg *config.Config, result *importer.Result) error {
	view, err := f.scan(ctx, cfg)
	if err != nil {
		return err
	}
	for _, n := range view.Matched.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	if err := newReport(cfg, view).table(w, false); err != nil {
		return err
	}
	before := result.Before(view.Snapshot)
	if len(before) == 0 {
		return nil
	}
	describe := func(d importer.Device) string {
		slices.Sort(d.Nodes)
		return fmt.Sprintf("%s: %s with %s", d.Resource, strings.Join(d.Nodes, ","), count(d.Slots, "slot"))
	}
	var now []string
	for _, m := range view.Matched.Resources {
		for _, o := range m.Offers {
			if o.Problem != "" {
				continue // in the list above
			}
			d := importer.Device{Resource: m.Name, Slots: o.Slots}
			for _, n := range o.Nodes {
				d.Nodes = append(d.Nodes, importer.NodeText(n.HostPath, n.Path.String()))
			}
			now = append(now, describe(d))
		}
	}
	same := true
	for _, d := range before {
		text := describe(d)
		if i := slices.Index(now, text); i >= 0 {
			now = slices.Delete(now, i, i+1)
			continue
		}
		same = false
		fmt.Fprintf(w, "only before: %s\n", text)
	}
	for _, text := range now {
		fmt.Fprintf(w, "only now: %s\n", text)
	}
	if same && len(now) == 0 {
		_, err = io.WriteString(w, "the other plugin offers the same devices on this host\n")
	}
	return err
}
