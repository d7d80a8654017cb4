package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
)

// load loads and validates the configuration at a path in the same way as serve. The path "-" is
// standard input. A manifest that contains a configuration is accepted as well.
func (f *flags) load(path string) (*config.Config, error) {
	cfg, err := f.parse(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w\n  hint: --config names another file or directory; generic-dp init writes one", err)
	}
	return cfg, err
}

// parse reads, parses and checks the configuration at a path.
func (f *flags) parse(path string) (*config.Config, error) {
	isPiped := path == "-"
	if !isPiped && !isManifest(path) {
		cfg, err := config.Load(path)
		return f.checked(cfg, err)
	}
	m, err := f.readText(path)
	if err != nil {
		return nil, err
	}
	cfg, err := f.checked(config.Parse(m.files...))
	var problems config.Problems
	if errors.As(err, &problems) {
		m.locateAll(problems)
	}
	if cfg != nil {
		m.locateAll(cfg.Notes)
	}
	return cfg, err
}

// checked checks a parsed configuration with the permissions of --allow.
func (f *flags) checked(cfg *config.Config, err error) (*config.Config, error) {
	if err != nil {
		return nil, err
	}
	err = cfg.Check(f.allow)
	if err != nil {
		return nil, err
	}
	return cfg, nil
}

// readText reads a configuration from standard input or from a manifest. Standard input may be a
// manifest too. It is kept, because it can only be read once.
func (f *flags) readText(path string) (*manifest, error) {
	isPiped := path == "-"
	if isPiped && f.piped != nil {
		return f.piped, nil
	}
	name, text, err := readInput(path)
	if err != nil {
		return nil, err
	}
	m, err := readManifest(name, text)
	if !isPiped {
		return m, err
	}
	if err != nil {
		// The text is not a manifest, so it is a file.
		m = &manifest{
			files: []config.File{{Name: name, Data: text}},
		}
	}
	f.piped = m
	return m, nil
}

// maxInput is the largest input, in bytes. It is far above any configuration, and keeps a device
// file or an endless pipe from filling the memory.
const maxInput = 16 << 20

// readInput reads a file, or standard input for "-", and returns the name of the input for
// messages.
func readInput(path string) (name string, text []byte, err error) {
	if path == "-" {
		const name = "standard input"
		text, err := readLimited(os.Stdin, name)
		return name, text, err
	}
	file, err := os.Open(path)
	if err != nil {
		return path, nil, err
	}
	defer file.Close()
	text, err = readLimited(file, path)
	return path, text, err
}

// readLimited reads an input. An input above the limit is an error: a part of it would be
// converted without a message about the rest.
func readLimited(input io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(input, maxInput+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > maxInput {
		return nil, fmt.Errorf("read %s: the input is larger than %d MiB", name, maxInput>>20)
	}
	return text, nil
}

// scanConfig scans the host and matches it with --config. If isOptional is set, an empty
// configuration replaces a default that is missing or broken.
func (f *flags) scanConfig(cmd *cobra.Command, isOptional bool) (*config.Config, *agent.View, error) {
	cfg, err := f.load(f.config)
	if err != nil {
		isDefault := !cmd.Flags().Changed("config")
		if !isOptional || !isDefault {
			return nil, nil, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: the configuration is ignored: %v\n", err)
		}
		cfg = &config.Config{}
	}
	view, err := f.scan(cmd.Context(), cfg)
	return cfg, view, err
}

// scan scans the host once and matches a configuration. It reads the identity decisions of a
// serving instance if they are readable, so that both show the same IDs.
func (f *flags) scan(ctx context.Context, cfg *config.Config) (*agent.View, error) {
	return agent.Scan(ctx, cfg, f.options(io.Discard))
}

// options returns the options of an agent that writes its log to w.
func (f *flags) options(w io.Writer) agent.Options {
	return agent.Options{
		Config:   f.config,
		Allow:    f.allow,
		Paths:    f.paths,
		NodeName: f.nodeName,
		Listen:   f.listen,
		KubeAPI:  kubeapi.InCluster(),
		Version:  version,
		InPod:    os.Getenv("KUBERNETES_SERVICE_HOST") != "",
		Log:      f.logger(w),
	}
}

// logger returns a logger in the format and with the level that the flags name.
func (f *flags) logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.level)) // the flag only accepts words that are levels
	options := &slog.HandlerOptions{Level: level}
	if f.format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
