package plugin

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/internal/tools/cli"
	"github.com/generic-dp/generic-dp/internal/tools/importer"
)

// importHelp is the help of import. The lines are wrapped by hand, since cobra prints them
// unchanged.
const importHelp = `import converts the configuration of another device plugin to TOML.

FILE is YAML or JSON with a configuration of generic-device-plugin (squat),
smarter-device-manager, sriov-network-device-plugin, k8s-rdma-shared-dev-plugin, or
Akri's discovery by udev: the file of the plugin, a ConfigMap, a DaemonSet or List
with the arguments of the plugin, or values of a chart; - is standard input.

Every difference is a comment in front of its resource and a warning with line and
place. The exit status is 3 if a part of FILE was not imported, and 1 if nothing was.`

// partlyImported is the exit status of an import that left something out. The configuration is
// printed nevertheless.
const partlyImported cli.StatusError = 3

// newImport returns the command that converts configurations of other device plugins. The result
// goes to standard output, and everything about it to standard error, so that the output can be
// redirected to a configuration file.
func newImport() *cobra.Command {
	var o importer.Options
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "convert the configuration of another device plugin",
		Long:  importHelp,
		Args:  cli.WantArgs(1, 1, "want one FILE, or - for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, data, err := cli.ReadInput(args[0])
			if err != nil {
				return err
			}
			return convert(cmd, name, data, o)
		},
	}
	cmd.Flags().StringVar(&o.Domain, "domain", "", "domain of resource names (default: the domain in FILE, or the newest default of the other plugin)")
	return cmd
}

// convert prints the converted input. file is the name of the input in messages. The error is errReported if nothing was
// imported, which is printed already.
func convert(cmd *cobra.Command, file string, data []byte, o importer.Options) error {
	result, err := importer.Convert(file, data, o)
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), strings.TrimRight(err.Error(), "\n"))
		return cli.ErrReported
	}
	// Warnings come before the configuration, so that a terminal does not show them in its
	// middle.
	for _, w := range result.Warnings {
		fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", w)
	}
	_, err = cmd.OutOrStdout().Write(result.TOML)
	if err == nil && result.Incomplete {
		err = partlyImported
	}
	return err
}
