// Command release builds the release artifacts of generic-dp: an OCI image for several
// platforms, packages for Debian and RPM, the Helm chart, archives of the plugin of kubectl with
// their manifest for Krew, checksums and bill of materials, and the files made from the chart:
// manifests, and the table of values.
// It needs only the Go toolchain, and its output is reproducible.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
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

// commands are the commands that only build files, and return their paths.
var commands = map[string]func(*release, context.Context) ([]string, error){
	"image":     (*release).image,
	"packages":  (*release).packages,
	"chart":     (*release).packChart,
	"krew":      (*release).krew,
	"all":       (*release).all,
	"manifests": (*release).manifests,
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: release [flags] image|packages|chart|krew|all|manifests|publish REGISTRY")
		flags.PrintDefaults()
	}
	var r release
	flags.StringVar(&r.source, "source", "../..", "root of the module")
	flags.StringVar(&r.out, "out", "../../dist", "output directory")
	flags.StringVar(&r.version, "version", "unknown", "version of the program")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	if flags.NArg() == 2 && flags.Arg(0) == "publish" {
		return r.publish(ctx, flags.Arg(1), stdout)
	}
	name := strings.Join(flags.Args(), " ")
	command := commands[name]
	if command == nil {
		flags.Usage()
		return fmt.Errorf("unknown command %q", name)
	}
	files, err := command(&r, ctx)
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

// sumsName is the file with the digests of all other files, in the format of sha256sum.
const sumsName = "SHA256SUMS"

// all builds all artifacts of a release.
func (r *release) all(ctx context.Context) ([]string, error) {
	var files []string
	parts := []func(context.Context) ([]string, error){r.image, r.packages, r.packChart, r.krew, r.writeDistributions}
	for _, build := range parts {
		made, err := build(ctx)
		if err != nil {
			return nil, err
		}
		files = append(files, made...)
	}
	var sums bytes.Buffer
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), filepath.Base(f))
	}
	file := filepath.Join(r.out, sumsName)
	return append(files, file), os.WriteFile(file, sums.Bytes(), 0o644)
}
