package plugin

import (
	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// newSchema returns the command schema. Its output only depends on the version of the program.
func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "print the JSON Schema of the configuration, for editors",
		Long: `schema prints the JSON Schema (draft 4) of the configuration. Editors with TOML
support use it to complete, document and check keys if the first line of a file
names it:

  #:schema ./generic-dp.schema.json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			text, err := config.Schema()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}
