package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	makeGoal = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
	keyOf    = regexp.MustCompile(`^(match|container|health|when|exclude|with)\.[a-z_.]+`)
)

// checkText checks commands, flags, keys and links in the text.
func (p *page) checkText() {
	reference, err := os.ReadFile(repository + "/config/reference.toml")
	if err != nil {
		p.t.Fatal(err)
	}
	inBlock := false
	for i, line := range p.lines {
		if strings.HasPrefix(line, "```") {
			inBlock = !inBlock
		}
		if inBlock {
			continue
		}
		for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
			span := strings.ReplaceAll(m[1], `\|`, "|")
			words := strings.Fields(span)
			switch {
			case len(words) == 0:
			case words[0] == "generic-dp" && len(words) > 1, words[0] == "make" && len(words) == 2:
				if words[0] == "make" {
					p.checkOther(&block{}, i, words)
				} else {
					p.checkFlags(i, words[1:])
				}
			case strings.HasPrefix(words[0], "--") && words[0] != "--":
				name, _, _ := strings.Cut(strings.TrimPrefix(words[0], "--"), "=")
				if !allFlags()[name] {
					p.errorf(i, "no command has --%s", name)
				}
			case keyOf.MatchString(span):
				if key := keyOf.FindString(span); !bytes.Contains(reference, []byte(key)) && !bytes.Contains(reference, []byte(key[strings.Index(key, ".")+1:])) {
					p.errorf(i, "no key %s in reference.toml", key)
				}
			}
		}
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			p.checkLink(i, m[1])
		}
	}
}

func (p *page) checkLink(line int, target string) {
	if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return
	}
	path, heading, _ := strings.Cut(target, "#")
	file := p.file
	if path != "" {
		file = filepath.Join(filepath.Dir(p.file), path)
	}
	text, err := os.ReadFile(file)
	if _, isDir := os.Stat(file); err != nil && isDir != nil {
		p.errorf(line, "link to %s: %v", target, err)
	}
	if heading == "" {
		return
	}
	for l := range strings.Lines(string(text)) {
		if strings.HasPrefix(l, "#") && anchor(l) == heading {
			return
		}
	}
	p.errorf(line, "link to %s: no such heading", target)
}

// anchor is what GitHub makes of a heading.
func anchor(heading string) string {
	heading = strings.ToLower(strings.TrimSpace(strings.TrimLeft(heading, "#")))
	return strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9_ -]`).ReplaceAllString(heading, ""), " ", "-")
}

// allFlags are the flags of all commands.
func allFlags() map[string]bool {
	names := map[string]bool{}
	root := newRoot(newFlags())
	for _, cmd := range append(root.Commands(), root) {
		cmd.InitDefaultHelpFlag()
		for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) { names[f.Name] = true })
		}
	}
	return names
}

// checkFlags parses the arguments of generic-dp, up to what a shell interprets.
func (p *page) checkFlags(line int, args []string) {
	if end := slices.IndexFunc(args, func(a string) bool { return strings.Trim(a, "|<>&;2") == "" }); end >= 0 {
		args = args[:end]
	}
	// A page writes what may be left out in brackets, and ... for more.
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "[") || a == "..." })
	root := newRoot(newFlags())
	root.InitDefaultCompletionCmd()
	cmd, rest, err := root.Find(args)
	if err == nil {
		cmd.InitDefaultHelpFlag()
		err = cmd.ParseFlags(rest)
	}
	if err == nil && cmd.Parent() == nil && cmd.Flags().NArg() > 0 {
		err = fmt.Errorf("unknown command %q", cmd.Flags().Arg(0))
	}
	if err != nil {
		p.errorf(line, "generic-dp %s: %v", strings.Join(args, " "), err)
	}
}

// docs/metrics.md has every metric, and no other.
func TestDocsOfMetrics(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(repository + "/docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\|").FindAllStringSubmatch(string(page), -1) {
		for _, m := range codeSpan.FindAllStringSubmatch(row[1], -1) {
			documented["generic_dp_"+m[1]] = true
		}
	}
	files, err := filepath.Glob(repository + "/metrics/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("package metrics: %v, %v", files, err)
	}
	served := map[string]bool{}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`"(generic_dp_[a-z_]+)"`).FindAllStringSubmatch(string(source), -1) {
			served[m[1]] = true
		}
	}
	if diff := cmp.Diff(served, documented); diff != "" {
		t.Errorf("docs/metrics.md (-served +documented):\n%s", diff)
	}
}

// README.md names the versions that the module and the chart have.
func TestDocsOfVersions(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(repository + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []struct{ file, pattern, text string }{
		{"go.mod", `(?m)^go (\d+\.\d+)`, "Go %s "},
		{"deploy/helm/generic-dp/Chart.yaml", `(?m)^kubeVersion: ">=(\d+\.\d+)`, "Kubernetes %s or later"},
	} {
		text, err := os.ReadFile(filepath.Join(repository, version.file))
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(version.pattern).FindSubmatch(text)
		if m == nil {
			t.Fatalf("%s lacks %s", version.file, version.pattern)
		}
		if want := fmt.Sprintf(version.text, m[1]); !strings.Contains(string(readme), want) {
			t.Errorf("README.md lacks %q, as in %s", want, version.file)
		}
	}
}

// ownVersion is a version of this program in a command.
var ownVersion = regexp.MustCompile(`(?:VERSION=|/generic-dp:|refs/tags/|\?ref=|--version |generic-dp_)v?(\d+\.\d+\.\d+)`)

// Commands name the version that the chart installs, which a tag releases.
func TestDocsOfReleases(t *testing.T) {
	t.Parallel()
	read := func(file string) string {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	chart := repository + "/deploy/helm/generic-dp/"
	want := regexp.MustCompile(`(?m)^version: (\S+)$`).FindStringSubmatch(read(chart + "Chart.yaml"))[1]
	pages, err := filepath.Glob(repository + "/docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, repository+"/README.md", chart+"README.md") {
		for _, m := range ownVersion.FindAllStringSubmatch(read(page), -1) {
			if found++; m[1] != want {
				t.Errorf("%s: %s: want %s, as in Chart.yaml", page, m[0], want)
			}
		}
	}
	if found < 5 {
		t.Errorf("%d versions in the pages", found)
	}
}
