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
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/generic-dp/generic-dp/internal/tools/plugin"
)

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	codeIn   = regexp.MustCompile("`([A-Za-z]+)` in \\[[^]]+\\]\\(([^)]+\\.go)\\)") // a function in a file
	makeGoal = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)
	keyOf    = regexp.MustCompile(`^(match|container|health|when|exclude|with)\.[a-z_.]+`)
)

// checkText checks commands, flags, keys and links in the text.
func (p *page) checkText() {
	reference, err := os.ReadFile(repository + "/config/reference.toml")
	must(p.t, err)
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
					p.checkFlags(i, newRoot(newFlags()), words[1:])
				}
			case strings.HasPrefix(words[0], "--") && words[0] != "--":
				name, _, _ := strings.Cut(strings.TrimPrefix(words[0], "--"), "=")
				if !p.allFlags()[name] {
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
		for _, m := range codeIn.FindAllStringSubmatch(line, -1) {
			if text, err := os.ReadFile(filepath.Join(repository, m[2])); err != nil || !regexp.MustCompile(`\b`+m[1]+`\b`).Match(text) {
				p.errorf(i, "no %s in %s", m[1], m[2])
			}
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

// evictFlag is the definition of a flag in the source of generic-dp-evict.
var evictFlag = regexp.MustCompile(`flags\.\w+Var\(&[\w.]+, "([a-z-]+)"`)

// allFlags are the flags of all commands and of generic-dp-evict.
func (p *page) allFlags() map[string]bool {
	names := map[string]bool{}
	source, err := os.ReadFile("../generic-dp-evict/main.go")
	must(p.t, err)
	for _, m := range evictFlag.FindAllStringSubmatch(string(source), -1) {
		names[m[1]] = true
	}
	root := newRoot(newFlags())
	all := append(root.Commands(), root)
	all = append(all, plugin.NewRoot(version).Commands()...)
	for _, cmd := range all {
		cmd.InitDefaultHelpFlag()
		for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) { names[f.Name] = true })
		}
	}
	return names
}

// checkFlags parses the arguments of generic-dp, up to what a shell interprets.
func (p *page) checkFlags(line int, root *cobra.Command, args []string) {
	if end := slices.IndexFunc(args, func(a string) bool { return strings.Trim(a, "|<>&;2") == "" }); end >= 0 {
		args = args[:end]
	}
	// A page writes what may be left out in brackets, and ... for more.
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "[") || a == "..." })
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
		p.errorf(line, "%s %s: %v", root.DisplayName(), strings.Join(args, " "), err)
	}
}

// docs/reference.md has every metric, and no other.
func TestDocsOfMetrics(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(repository + "/docs/reference.md")
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Metrics\n")
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\|").FindAllStringSubmatch(section, -1) {
		for _, m := range codeSpan.FindAllStringSubmatch(row[1], -1) {
			documented["generic_dp_"+m[1]] = true
		}
	}
	files, err := filepath.Glob(repository + "/internal/status/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("package status: %v, %v", files, err)
	}
	served := map[string]bool{}
	for _, file := range files {
		source, err := os.ReadFile(file)
		must(t, err)
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`"(generic_dp_[a-z_]+)"`).FindAllStringSubmatch(string(source), -1) {
			served[m[1]] = true
		}
	}
	if diff := cmp.Diff(served, documented); diff != "" {
		t.Errorf("docs/reference.md (-served +documented):\n%s", diff)
	}
}

// README.md names the versions that the module and the chart have.
func TestDocsOfVersions(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(repository + "/README.md")
	must(t, err)
	for _, version := range []struct{ file, pattern, text string }{
		{"go.mod", `(?m)^go (\d+\.\d+)`, "Go %s "},
		{"deploy/helm/generic-dp/Chart.yaml", `(?m)^kubeVersion: ">=(\d+\.\d+)`, "Kubernetes %s or later"},
	} {
		text, err := os.ReadFile(filepath.Join(repository, version.file))
		must(t, err)
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
		must(t, err)
		return string(text)
	}
	chart := repository + "/deploy/helm/generic-dp/"
	want := regexp.MustCompile(`(?m)^version: (\S+)$`).FindStringSubmatch(read(chart + "Chart.yaml"))[1]
	pages, err := filepath.Glob(repository + "/docs/*.md")
	must(t, err)
	found := 0
	unpublished := 0
	for _, page := range append(pages, repository+"/README.md", chart+"README.md", repository+"/CHANGELOG.md") {
		unpublished += strings.Count(read(page), "published yet")
		for _, m := range ownVersion.FindAllStringSubmatch(read(page), -1) {
			if found++; m[1] != want {
				t.Errorf("%s: %s: want %s, as in Chart.yaml", page, m[0], want)
			}
		}
	}
	if found < 5 {
		t.Errorf("%d versions in the pages", found)
	}
	// The first release changes one line of the pages.
	if unpublished > 1 {
		t.Errorf("%d places say that nothing is published yet, want one", unpublished)
	}
}

// others are the commands of the pages that need a cluster, a host's services or a
// network. Nothing of them runs, but what they name exists.
var others = []string{
	"apt-get install", "chcon", "cosign verify", "cosign verify-blob", "cp", "ctr", "gh attestation", "helm install", "helm uninstall", "helm upgrade", "kubectl apply", "kubectl delete", "kubectl describe", "kubectl exec", "kubectl get",
	"kubectl label", "kubectl logs", "kubectl patch", "kubectl port-forward", "kubectl rollout", "make", "podman run", "rm", "sha256sum", "stat", "systemctl",
}

var (
	repositoryPath = regexp.MustCompile(`^(\./)?(deploy|examples|docs|config|hack|test)/`)
	unitName       = regexp.MustCompile(`^generic-dp[a-z-]*(\.service)?$`)
	setValue       = regexp.MustCompile(`^--set(?:-file|-string|-json)?[= ]'?([a-zA-Z0-9.\\_-]+)`)
)

// checkOther checks a command of another program.
func (p *page) checkOther(b *block, line int, words []string) {
	verb := words[0]
	if slices.Contains([]string{"apt-get", "cosign", "gh", "helm", "kubectl", "podman"}, verb) {
		for i := 1; i < len(words); i++ {
			if words[i] == "-n" || words[i] == "--namespace" {
				i++
			} else if !strings.HasPrefix(words[i], "-") {
				verb += " " + words[i]
				break
			}
		}
	}
	switch {
	case b.elsewhere:
	case b.first > 0 && slices.Contains(pasted, filepath.Base(p.file)):
		p.errorf(line, "%q does not run here: want <!-- run: cluster --> or <!-- not run: REASON --> before the block", verb)
	case !slices.Contains(others, verb):
		p.errorf(line, "%q is not among the commands that are known not to run here", verb)
	}
	inside := slices.Index(words, "--")
	if inside >= 0 && inside+1 < len(words) && words[inside+1] == "/generic-dp" {
		p.checkFlags(line, newRoot(newFlags()), words[inside+2:])
		words = words[:inside]
	}
	for i, word := range words {
		word = strings.Trim(word, `'"`)
		before := ""
		if i > 0 {
			before = words[i-1]
		}
		switch {
		case words[0] == "make" && i > 0 && !strings.Contains(word, "="):
			p.checkGoal(line, word)
		case (before == "-n" || before == "--namespace") && (words[0] == "kubectl" || words[0] == "helm") && word != "generic-dp" && word != "generic-dp-canary":
			p.errorf(line, "namespace %s: want generic-dp, or generic-dp-canary", word)
		case repositoryPath.MatchString(word):
			if _, err := os.Stat(filepath.Join(repository, word)); err != nil {
				p.errorf(line, "%v", err)
			}
		case before == "-f" || before == "--values":
			_, err := os.Stat(filepath.Join(p.dir, word))
			isOwn := word == "values.yaml" // values of the user
			if err != nil && !isOwn && !slices.Contains(p.written, word) {
				p.errorf(line, "%s: no earlier block writes it", word)
			}
		case strings.HasPrefix(word, "ds/"), strings.HasPrefix(word, "daemonset/"), strings.HasPrefix(word, "configmap/"):
			if !strings.HasSuffix(word, "/generic-dp") {
				p.errorf(line, "%s: want generic-dp", word)
			}
		case words[0] == "systemctl" && i > 1 && strings.HasPrefix(word, "generic-dp"):
			name := strings.TrimSuffix(word, ".service") + ".service"
			if _, err := os.Stat(filepath.Join(repository, "deploy/systemd", name)); err != nil || !unitName.MatchString(word) {
				p.errorf(line, "no unit %s", word)
			}
		case words[0] == "podman" && strings.Contains(word, "=") && before == "--device":
			name, _, _ := strings.Cut(word, "=")
			p.wanted = append(p.wanted, wanted{b, name})
		}
		if m := setValue.FindStringSubmatch(word + " " + after(words, i)); m != nil {
			p.checkValue(line, m[1])
		}
	}
}

func after(words []string, i int) string {
	if i+1 < len(words) {
		return words[i+1]
	}
	return ""
}

func (p *page) checkGoal(line int, goal string) {
	text, err := os.ReadFile(repository + "/Makefile")
	must(p.t, err)
	for _, m := range makeGoal.FindAllStringSubmatch(string(text), -1) {
		if m[1] == goal {
			return
		}
	}
	p.errorf(line, "no goal %s in Makefile", goal)
}

// checkValue checks that the chart has a value; "\." is a dot in a name.
func (p *page) checkValue(line int, path string) {
	text, err := os.ReadFile(repository + "/deploy/helm/generic-dp/values.yaml")
	must(p.t, err)
	var value any
	must(p.t, yaml.Unmarshal(text, &value))
	for key := range strings.SplitSeq(strings.ReplaceAll(path, `\.`, "\x00"), ".") {
		values, _ := value.(map[string]any)
		key = strings.ReplaceAll(key, "\x00", ".")
		ok := false
		if value, ok = values[key]; !ok && !strings.HasSuffix(key, ".toml") {
			p.errorf(line, "the chart has no value %s", path)
			return
		}
	}
}
