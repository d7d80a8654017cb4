package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/tools/importer"
)

// importHelp is the help of import. It names every format of package importer with its word for
// --from. The lines are wrapped by hand, since cobra prints them unchanged.
const importHelp = `import converts the configuration of another device plugin to TOML. Comments and
warnings name everything that has no equivalent.

FILE is a configuration of generic-device-plugin (squat), smarter-device-manager
(smarter), sriov-network-device-plugin (sriov) or k8s-rdma-shared-dev-plugin (rdma),
permittedHostDevices of KubeVirt (kubevirt), a Configuration of Akri with rules of
udev (akri), or sharing of NVIDIA's device plugin (nvidia); or a file that contains one
anywhere, in texts too: a ConfigMap, the arguments of a container, a command line or
script, values of a Helm chart or of helm install --set, Flux and Argo CD objects, patches
and variables, but no unrendered templates; - is standard input.

Without a device plugin, FILE is a file of Docker Compose or a command line of docker run
(compose), a container unit of Podman (quadlet), a pod with hostPath volumes of devices
(pod), or udev rules (udev): each device becomes a resource.`

// newImport returns the command that converts configurations of other device plugins. The result
// goes to standard output, and everything about it to standard error, so that the output can be
// redirected to a configuration file. The exit status is 0 even if there are warnings: most
// configurations have settings without an equivalent.
func newImport(f *flags) *cobra.Command {
	o := importer.Options{}
	check := false
	from := string(importer.Auto)
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "convert the configuration of another device plugin",
		Long:  importHelp,
		Args:  wantArgs(1, 1, "want one FILE, or - for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Format = importer.Format(from)
			name, data, err := readInput(args[0])
			if err != nil {
				return err
			}
			// Most inputs say which domain they have: the other files are only read if
			// needed.
			o.Neighbours = func() map[string]string {
				return neighbours(args[0])
			}
			cfg, result, err := convert(cmd, name, data, o)
			// Without --check, the host is not read, so that import runs on any machine.
			if err != nil || !check {
				return err
			}
			return f.compare(cmd.Context(), cmd.ErrOrStderr(), cfg, result)
		},
	}
	// Completion and messages name the same words.
	var formats []string
	for _, f := range importer.Formats() {
		formats = append(formats, string(f))
	}
	cmd.Flags().Var(word{&from, formats}, "from", "format of FILE: "+strings.Join(formats, ", "))
	cmd.Flags().BoolVar(&check, "check", false, "list the devices of this host, or of --sysfs, that the result offers, and where the other plugin differs")
	f.add(cmd, hostFlags, []string{"allow", "node-name"})
	cmd.Flags().StringVar(&o.Domain, "domain", "", "domain of resource names (default: the domain in FILE, or the domain of the other plugin)")
	return cmd
}

// maxNeighbours limits the files that are read beside the input: a directory with manifests has a
// few dozen. Each file may have maxInput bytes.
const maxNeighbours = 100

// neighbours reads the YAML and JSON files in the directory of a file, by name and without the
// file itself. Files that cannot be read are left out: they only help to find the domain of
// resources. The result is empty for standard input.
func neighbours(file string) map[string]string {
	texts := make(map[string]string)
	dir := filepath.Dir(file)
	entries, err := os.ReadDir(dir)
	if file == "-" || err != nil {
		return texts
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if !isRegularManifest(e) || path == filepath.Clean(file) || len(texts) == maxNeighbours {
			continue
		}
		if _, text, err := readInput(path); err == nil {
			texts[e.Name()] = string(text)
		}
	}
	return texts
}

// isRegularManifest reports whether a directory entry is a regular file that may be a manifest. A
// link or a named pipe is not read: reading it might block.
func isRegularManifest(e os.DirEntry) bool {
	return isManifest(e.Name()) && e.Type().IsRegular()
}

// convert prints the converted input, after validating it: a conversion that does not load is a
// bug. The result is printed whole or not at all, since a part of it would be a valid
// configuration that offers less. file is the name of the input in messages. The error is
// errReported if the input has problems, which are printed already.
func convert(cmd *cobra.Command, file string, data []byte, o importer.Options) (*config.Config, *importer.Result, error) {
	result, err := importer.Convert(file, data, o)
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), strings.TrimRight(err.Error(), "\n"))
		return nil, nil, errReported
	}
	imported := config.File{
		Name: "imported.toml",
		Data: result.TOML,
	}
	cfg, err := config.Parse(imported)
	if err != nil {
		return nil, nil, fmt.Errorf("the conversion of %s is invalid, which is a bug of generic-dp: please report it with that file\n%w\n%s", file, err, result.TOML)
	}
	// Warnings come before the configuration, so that a terminal does not show them in its
	// middle.
	for _, w := range result.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
	}
	_, err = cmd.OutOrStdout().Write(result.TOML)
	return cfg, result, err
}

// compare lists the devices of this host that the converted configuration offers, and where the
// devices of the other plugin differ. It writes to w, which is not standard output: that is for
// the configuration. A difference is no error.
//
// The permissions of --allow apply as they do when the configuration is served: a refused device
// is in the table with the reason, and does not count as offered.
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
	var now []importer.Device
	for _, m := range view.Matched.Resources {
		for i := range m.Offers {
			offer := &m.Offers[i]
			isRefused := offer.Problem != ""
			if isRefused {
				continue
			}
			now = append(now, importer.Offered(m.Name, offer))
		}
	}
	// The other plugins test attributes that our configuration does not name, so they get their
	// own reader of sysfs.
	scanner := inventory.New(f.paths.Inventory())
	snapshot, err := scanner.Scan(ctx)
	if err != nil {
		return err
	}
	before := result.Before(snapshot, scanner.Attributes())
	return printDifferences(w, before, now, result.NotCompared)
}

// printDifferences prints how the devices of the other plugin differ from ours. notCompared names
// plugins that choose their devices by rules that are not implemented here. If before is empty
// because of that, every device would look new, so nothing is compared.
func printDifferences(w io.Writer, before, now []importer.Device, notCompared []string) error {
	for _, plugin := range notCompared {
		fmt.Fprintf(w, "note: the devices that %s offers cannot be listed here: compare the table with the node's capacity (kubectl describe node)\n", plugin)
	}
	if len(notCompared) > 0 && len(before) == 0 {
		return nil
	}
	onlyBefore, onlyNow := importer.Compare(before, now)
	for _, text := range onlyBefore {
		fmt.Fprintf(w, "only before: %s\n", text)
	}
	for _, text := range onlyNow {
		fmt.Fprintf(w, "only now: %s\n", text)
	}
	if len(onlyBefore)+len(onlyNow) > 0 {
		return nil
	}
	_, err := io.WriteString(w, "the other plugin offers the same devices on this host\n")
	return err
}
