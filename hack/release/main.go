// Command release builds the release artifacts of generic-dp: an OCI image for several
// platforms, packages for Debian and RPM, their bills of materials, and what
// is made from the Helm chart: the plain manifest and the table of values. It needs only the Go toolchain, and its output is reproducible.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

const commands = "image|packages|manifests"

// release is the input and output of a build.
type release struct {
	source  string // root of the module
	out     string // output directory
	version string
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: release [flags] "+commands)
		flags.PrintDefaults()
	}
	var r release
	flags.StringVar(&r.source, "source", "../..", "root of the module")
	flags.StringVar(&r.out, "out", "../../dist", "output directory")
	flags.StringVar(&r.version, "version", "unknown", "version of the program")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		flags.Usage()
		return fmt.Errorf("want one of %s, got %q", commands, flags.Args())
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	var files []string
	var err error
	switch what := flags.Arg(0); what {
	case "image":
		files, err = r.image(ctx)
	case "packages":
		files, err = r.packages(ctx)
	case "manifests":
		files, err = r.manifests()
	default:
		return fmt.Errorf("want one of %s, got %q", commands, what)
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "%-52s %6.1f MB\n", filepath.Base(f), float64(info.Size())/1e6)
	}
	return nil
}
