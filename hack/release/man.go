package main

import (
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// shells are the shells with completion scripts.
var shells = []string{"bash", "zsh", "fish"}

// writeManual writes the man page and the completion scripts into a directory. It makes them with the
// program.
func (r *release) writeManual(ctx context.Context, dir string) error {
	i := slices.IndexFunc(platforms, func(p platform) bool { return p.arch == runtime.GOARCH })
	if i < 0 {
		return fmt.Errorf("no platform for %s, which would run the program", runtime.GOARCH)
	}
	binary, err := r.build(ctx, platforms[i])
	if err != nil {
		return err
	}
	run := func(args ...string) (string, error) {
		text, err := exec.CommandContext(ctx, binary, args...).Output()
		if err != nil {
			return "", fmt.Errorf("generic-dp %s: %w", strings.Join(args, " "), err)
		}
		return string(text), nil
	}
	for _, shell := range shells {
		text, err := run("completion", shell)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, shell), []byte(text), 0o644)
		}
		if err != nil {
			return err
		}
	}
	page, err := manPage(r.version, run)
	if err != nil {
		return err
	}
	// Debian's policy wants compressed pages. Without a time in the header, builds are equal.
	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, page); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "generic-dp.1.gz"), compressed.Bytes(), 0o644)
}

var (
	commandLine = regexp.MustCompile(`(?m)^  ([a-z]+) +\S.*$`)
	flagLine    = regexp.MustCompile(`^ {2,6}((?:-\w, )?--[a-z-]+(?: \w+)?) {2,}(\S.*)$`)
)

// manPage is one page for all commands, made of their --help.
func manPage(version string, run func(args ...string) (string, error)) (string, error) {
	help, err := run("--help")
	if err != nil {
		return "", err
	}
	var page bytes.Buffer
	fmt.Fprintf(&page, ".TH GENERIC-DP 1 \"\" \"generic-dp %s\" \"User Commands\"\n.SH NAME\ngeneric-dp \\- generic Kubernetes device plugin, configured in TOML\n", roff(version))
	fmt.Fprintf(&page, ".SH SYNOPSIS\n.B generic-dp\n.I command\n.RI [ flags ]\n.SH DESCRIPTION\n")
	_, list, _ := strings.Cut(help, "\nAvailable Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	help, _, _ = strings.Cut(help, "\nUse \"generic-dp [command]")
	section(&page, help)
	fmt.Fprintf(&page, ".SH COMMANDS\n")
	for _, m := range commandLine.FindAllStringSubmatch(list, -1) {
		if m[1] == "help" || m[1] == "completion" {
			continue
		}
		text, err := run(m[1], "--help")
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&page, ".SS %s\n", m[1])
		section(&page, text)
	}
	page.WriteString(manEnd)
	return page.String(), nil
}

// manEnd is the part of the man page that no help text has.
//
//go:embed man-end.roff
var manEnd string

// section writes a help text unfilled, and its flags, whose lines are long, as a list.
func section(page *bytes.Buffer, help string) {
	fmt.Fprintln(page, ".nf")
	for line := range strings.SplitSeq(strings.TrimSpace(help), "\n") {
		if m := flagLine.FindStringSubmatch(line); m != nil {
			fmt.Fprintf(page, ".fi\n.TP\n.B %s\n%s\n.nf\n", roff(m[1]), roff(m[2]))
			continue
		}
		if line == "" {
			line = ".PP" // also ends a list of flags
		} else {
			line = roff(line)
		}
		fmt.Fprintln(page, line)
	}
	fmt.Fprintln(page, ".fi")
}

// roff escapes a line of text for roff.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
