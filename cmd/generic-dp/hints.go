package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/generic-dp/generic-dp/internal/tools/cli"
)

// repeated are the flags that the commands in hints repeat: without them, a command would read
// another configuration or another host than the command that printed it. The order is the order
// in hints, whatever the order on the command line.
var repeated = []string{
	"config",
	"sysfs",
	"dev",
	"state-dir",
	"node-name",
	"allow",
	"domains",
}

// remember keeps the flags of the command line for hints, before a recording replaces the paths.
// A flag that was not given is not repeated, even if NODE_NAME gives it a value.
func (f *flags) remember(cmd *cobra.Command) {
	for _, name := range repeated {
		flag := cmd.Flags().Lookup(name)
		if flag == nil || !flag.Changed {
			continue
		}
		f.given = append(f.given, argumentOf(flag))
	}
}

// argumentOf returns a flag with its value as an argument for a shell. A repeated list flag
// becomes one argument with all values.
func argumentOf(flag *pflag.Flag) string {
	value := flag.Value.String()
	isList := flag.Value.Type() == "list"
	separator := " "
	if isList || value == "" {
		separator = "="
	}
	return "--" + flag.Name + separator + cli.ShellQuote(value)
}

// command returns a complete command for a hint: with the flags that were given. words are the
// command and its arguments. The user can paste the result into a shell.
func (f *flags) command(words ...string) string {
	return f.commandWith(f.given, words...)
}

// commandFor is like command, for the configuration at a path in place of --config. check uses
// it, since its arguments are paths.
func (f *flags) commandFor(path string, words ...string) string {
	flags := []string{"--config " + cli.ShellQuote(path)}
	for _, argument := range f.given {
		if !strings.HasPrefix(argument, "--config") {
			flags = append(flags, argument)
		}
	}
	return f.commandWith(flags, words...)
}

// commandOn is like command, for a command that reads the host but no configuration. It only
// repeats the flags that say where the host is.
func (f *flags) commandOn(words ...string) string {
	var flags []string
	for _, argument := range f.given {
		name, _, _ := strings.Cut(argument, " ")
		switch name {
		case "--sysfs", "--dev", "--state-dir":
			flags = append(flags, argument)
		}
	}
	return f.commandWith(flags, words...)
}

// commandWith returns a command with flags that are already quoted.
func (f *flags) commandWith(flags []string, words ...string) string {
	all := []string{"generic-dp"}
	for _, word := range words {
		all = append(all, cli.ShellQuote(word))
	}
	all = append(all, flags...)
	return strings.Join(all, " ")
}

// listHardware is the command that hints of other packages name. They do not know the flags, and
// completeCommands adds them.
const listHardware = "generic-dp devices --all"

// completeCommands completes the commands in a message with the flags that were given. It returns
// a message without such a command unchanged.
func (f *flags) completeCommands(message string) string {
	if !strings.Contains(message, listHardware) {
		return message
	}
	complete := f.commandOn("devices", "--all")
	return strings.ReplaceAll(message, listHardware, complete)
}
