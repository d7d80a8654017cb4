package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/importer"
)

func newImport() *cobra.Command {
	o := importer.Options{Format: importer.Auto}
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
anywhere, in texts too: a ConfigMap, the arguments of a container, values of a Helm
chart, Flux and Argo CD objects, patches and variables, but no unrendered templates;
- is standard input.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("want one FILE, or - for standard input")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Format = importer.Format(from)
			name, in := "standard input", cmd.InOrStdin()
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer file.Close()
				name, in = args[0], file
			}
			data, err := io.ReadAll(io.LimitReader(in, maxImport))
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			return convert(cmd, name, data, o)
		},
	}
	var formats []string
	for _, f := range importer.Formats() {
		formats = append(formats, string(f))
	}
	cmd.Flags().Var(word{&from, formats}, "from", "format of FILE: "+strings.Join(formats, ", "))
	cmd.Flags().StringVar(&o.Domain, "domain", "", "domain of resource names (default that of FILE or of the other plugin)")
	return cmd
}

// maxImport is the size limit of an input, in bytes.
const maxImport = 16 << 20

// convert prints the converted input, after validating it: a conversion that does not
// load is a bug.
func convert(cmd *cobra.Command, file string, data []byte, o importer.Options) error {
	result, err := importer.Convert(file, data, o)
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), strings.TrimRight(err.Error(), "\n"))
		return errReported
	}
	if _, err := config.Parse(config.File{Name: "imported.toml", Data: result.TOML}); err != nil {
		return fmt.Errorf("the conversion of %s is invalid, which is a bug of generic-dp: please report it with that file\n%w\n%s", file, err, result.TOML)
	}
	for _, w := range result.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
	}
	_, err = cmd.OutOrStdout().Write(result.TOML)
	return err
}
