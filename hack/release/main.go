// Command release makes the artifacts of a release that no tool makes: the image, from archives of the
// programs in the output directory, and files made from the chart. hack/release.sh and the Makefile run it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

// release is the input and output of a build.
type release struct {
	source  string // root of the module
	out     string // output directory
	version string
}

// commands are the commands by name.
var commands = map[string]func(*release) error{
	"image":         (*release).image,
	"manifests":     (*release).manifests,
	"distributions": (*release).distributions,
}

func run(args []string, stderr io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: release [flags] image|manifests|distributions")
		flags.PrintDefaults()
	}
	var r release
	flags.StringVar(&r.source, "source", "../..", "root of the module")
	flags.StringVar(&r.out, "out", "../../dist", "output directory")
	flags.StringVar(&r.version, "version", "unknown", "version of the image")
	if err := flags.Parse(args); err != nil {
		return err
	}
	command := commands[flags.Arg(0)]
	if command == nil {
		flags.Usage()
		return fmt.Errorf("unknown command %q", flags.Arg(0))
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	return command(&r)
}
