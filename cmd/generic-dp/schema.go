package main

import (
	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
)

func newSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "print a JSON Schema of the configuration, for editors",
		Long: `schema prints a JSON Schema (draft 4) of the configuration. Editors that know
TOML complete keys, show what they mean and mark mistakes where the first line
of a file names it:

  #:schema ./generic-dp.schema.json`,
		Args: noArgs,
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
