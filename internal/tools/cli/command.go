package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// ErrReported ends a command that has already printed its problems. The exit status is 1.
var ErrReported = errors.New("reported")

// UsageError is an invalid command line. The exit status is 2, and the hint names --help. Errors
// in files and on the host are no usage errors.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Usagef returns a UsageError.
func Usagef(format string, args ...any) error {
	return UsageError{fmt.Errorf(format, args...)}
}

// StatusError ends a command that has printed its report with another status than 1. The report is
// the message, so nothing else is printed.
type StatusError int

func (e StatusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

// Setup prepares the root command of a program for Run, which prints errors: cobra would print them
// with another prefix, and the usage of the command after each of them.
func Setup(root *cobra.Command) {
	root.Args = NoArgs
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		return cmd.Help()
	}
	root.SuggestionsMinimumDistance = 2
	root.SilenceErrors = true
	root.SilenceUsage = true
	// An unknown flag or a bad value is also a usage error. Subcommands inherit the function.
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return UsageError{err}
	})
}

// NoArgs rejects arguments. An argument of the root command is an unknown command. A file name as
// the argument of a command that reads a configuration is a common mistake: the error names
// --config.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	first := args[0]
	if cmd == cmd.Root() {
		similar := cmd.SuggestionsFor(first)
		if len(similar) > 0 {
			return Usagef("unknown command %q: did you mean %s?", first, OrList(similar))
		}
		return Usagef("unknown command %q", first)
	}
	// clean also has flags for paths. Of the commands without arguments, only commands that load
	// a configuration have --allow.
	readsConfig := cmd.Flags().Lookup("allow") != nil
	if readsConfig && IsTOML(first) {
		return UseConfig(first)
	}
	return Usagef("unexpected argument %q", first)
}

// IsTOML reports whether an argument names a TOML file.
func IsTOML(argument string) bool { return strings.HasSuffix(argument, ".toml") }

// UseConfig returns the error for a configuration that is given as an argument.
func UseConfig(argument string) error {
	return Usagef("unexpected argument %q: use --config %s", argument, argument)
}

// WantArgs rejects fewer arguments than least and more than most. want says which arguments the
// command has, and is the whole text of the error: "want one FILE".
func WantArgs(least, most int, want string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return UsageError{errors.New(want)}
		}
		return nil
	}
}

// Word is the value of a flag that accepts one of some words, which the help lists.
type Word struct {
	// Value is the chosen word. It contains the default before the flag is parsed.
	Value *string
	Words []string
}

// Set accepts words in any letter case, because log/slog writes levels in capitals. The value is
// always in lower case.
func (w Word) Set(text string) error {
	text = strings.ToLower(text)
	if !slices.Contains(w.Words, text) {
		return errors.New("want " + OrList(w.Words))
	}
	*w.Value = text
	return nil
}

func (w Word) String() string { return *w.Value }

func (Word) Type() string { return "string" }

// OrList joins words for a sentence: "a, b or c". It returns an empty text for no words.
func OrList(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	before := strings.Join(words[:last], ", ")
	return before + " or " + words[last]
}

// OutputFlag adds -o to a command. The first format is the default. The result points to the
// chosen format, which is only valid once the command line is parsed.
func OutputFlag(cmd *cobra.Command, formats ...string) *string {
	format := formats[0]
	value := Word{
		Value: &format,
		Words: formats,
	}
	cmd.Flags().VarP(value, "output", "o", OrList(formats))
	return &format
}
