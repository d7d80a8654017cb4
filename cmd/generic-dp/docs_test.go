package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/tools/txtar"

	"github.com/generic-dp/generic-dp/internal/host/recording"
	"github.com/generic-dp/generic-dp/internal/tools/plugin"
)

var update = flag.Bool("update", false, "write the output of commands into README.md and docs/*.md")

// repository is the root of the repository.
const repository = "../.."

// TestDocs runs what the pages show: a reader gets what is written there.
//
//   - Commands of ```console and ```sh blocks: generic-dp runs on the recorded machine of
//     the page, in one directory for each page, and output after "$ COMMAND" is compared,
//     up to "..."; of other programs the paths, names and values are. Flags in the text
//     exist.
//   - ```toml is a configuration that passes check with the --allow, --domains and
//     --node-name of its comments and not without, and has a device for each resource.
//   - ```yaml is an object whose resources a configuration of its section or page
//     offers, or values of the chart with such a configuration.
//   - Links lead to files and headings.
//
// A comment before a block says where it runs: <!-- machine: NAME -->, from there on, is a
// file of testdata/machines, or "none"; <!-- file: NAME --> writes the block to that file;
// <!-- run: cluster --> is a block that TestPages of test/e2e/cluster runs, and
// <!-- not run: REASON --> one that no test runs. Of such blocks the paths, names, flags and
// values are checked here. On the pages in pasted, each block runs somewhere or has a reason.
func TestDocs(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(repository + "/docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages: %v, %v", pages, err)
	}
	for _, name := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", ".github/ISSUE_TEMPLATE/bug.yml", ".github/ISSUE_TEMPLATE/device.yml"} {
		pages = append(pages, filepath.Join(repository, name))
	}
	for _, file := range pages {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			p := readPage(t, file)
			p.checkText()
			for _, b := range p.blocks {
				p.run(b)
			}
			p.checkResources()
			if *update {
				if err := os.WriteFile(file, []byte(strings.Join(p.lines, "\n")), 0o644); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// pasted are the pages whose blocks a new user pastes into a shell.
var pasted = []string{"README.md", "tutorial.md", "install.md", "podman.md"}

// page is a Markdown file and the directory in which its commands run.
type page struct {
	t        *testing.T
	file     string
	lines    []string // as they are written with -update
	blocks   []*block
	sections []section
	dir      string // of its commands
	scripts  string
	written  []string // files that blocks write that do not run here
	wanted   []wanted
}

// section is the part below one heading.
type section struct {
	text    []string // without blocks
	offered []string // resources of its configurations
}

type block struct {
	language, file, machine string
	elsewhere               bool // it runs in another test, or does not run
	first, end              int  // lines of the page
	section                 int
}

// wanted is a resource that a pod requests.
type wanted struct {
	*block
	name string
}

var comment = regexp.MustCompile(`^<!-- (?:(machine|file): (\S+)|(run): cluster|(not run): \S.*) -->$`)

func readPage(t *testing.T, file string) *page {
	text, err := os.ReadFile(file)
	must(t, err)
	p := &page{t: t, file: file, lines: strings.Split(string(text), "\n"), dir: t.TempDir(), scripts: t.TempDir(), sections: []section{{}}}
	next, open := block{}, (*block)(nil)
	for i, line := range p.lines {
		switch m := comment.FindStringSubmatch(line); {
		case open != nil && line == "```":
			open.end, open = i, nil
		case open != nil:
		case strings.HasPrefix(line, "```"):
			b := next
			b.language, b.first, b.section = strings.TrimPrefix(line, "```"), i+1, len(p.sections)-1
			p.blocks, open, next.file, next.elsewhere = append(p.blocks, &b), &b, "", false
		case m == nil && strings.HasPrefix(line, "<!--"):
			p.errorf(i, "%s: want <!-- machine: NAME -->, <!-- file: NAME -->, <!-- run: cluster --> or <!-- not run: REASON -->, one in a line", line)
		case strings.HasPrefix(line, "#"):
			p.sections = append(p.sections, section{})
		case m != nil && m[1] == "":
			next.elsewhere = true
		case m != nil && m[1] == "machine":
			next.machine = strings.TrimSuffix(m[2], "none")
		case m != nil:
			next.file = m[2]
		default:
			s := &p.sections[len(p.sections)-1]
			s.text = append(s.text, line)
		}
	}
	if open != nil {
		p.errorf(open.first, "block without an end")
	}
	return p
}

func (p *page) errorf(line int, format string, args ...any) {
	p.t.Helper()
	p.t.Errorf("%s:%d: %s", strings.TrimPrefix(p.file, repository+"/"), line+1, fmt.Sprintf(format, args...))
}

func (b *block) text(p *page) string {
	return strings.Join(p.lines[b.first:b.end], "\n") + "\n"
}

func (p *page) run(b *block) {
	if b.file != "" {
		must(p.t, os.WriteFile(filepath.Join(p.dir, b.file), []byte(b.text(p)), 0o644))
	}
	isFile := b.language == "ini" || b.language == "yaml" && b.file == ""
	if isFile && !b.elsewhere && slices.Contains(pasted, filepath.Base(p.file)) {
		p.errorf(b.first-1, "want <!-- file: NAME -->, or <!-- not run: REASON -->")
	}
	switch b.language {
	case "toml":
		p.checkConfig(b, b.text(p))
	case "yaml":
		p.checkYAML(b)
	case "ini":
		for line := range strings.Lines(b.text(p)) {
			if name, ok := strings.CutPrefix(line, "AddDevice="); ok {
				name, _, _ = strings.Cut(name, "=")
				p.wanted = append(p.wanted, wanted{b, name})
			}
		}
	case "sh", "console":
		p.runCommands(b)
	default:
		p.errorf(b.first-1, "a block of %q, which is not checked", b.language)
	}
}

// runCommands runs the commands of a block; what a console shows after "$ COMMAND" is
// compared with what the command prints.
func (p *page) runCommands(b *block) {
	var found []string
	for i := b.first; i < b.end; {
		first, command := i, p.lines[i]
		for i++; strings.HasSuffix(command, `\`) && i < b.end; i++ {
			command = strings.TrimSuffix(command, `\`) + strings.TrimSpace(p.lines[i])
		}
		found = append(found, p.lines[first:i]...)
		if m := redirection.FindStringSubmatch(command); m != nil && b.elsewhere {
			p.written = append(p.written, m[1])
		}
		if b.language == "sh" {
			p.runCommand(b, first, command)
			continue
		}
		end := i
		for end < b.end && !strings.HasPrefix(p.lines[end], "$ ") {
			end++
		}
		want := p.lines[i:end]
		command, prompt := strings.CutPrefix(command, "$ ")
		if !prompt {
			p.errorf(first, "want $ and a command")
		}
		output := p.runCommand(b, first, command)
		var lines []string
		if output = strings.TrimRight(output, "\n"); output != "" {
			lines = strings.Split(output, "\n")
		}
		if shown := len(want) - 1; shown >= 0 && want[shown] == "..." && shown <= len(lines) {
			lines = append(lines[:shown:shown], "...")
		}
		if !slices.Equal(lines, want) && !*update {
			p.errorf(first, "%s prints\n%s\nwant\n%s\nor -update", command, strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
		found, i = append(found, lines...), end
	}
	if *update && b.language == "console" {
		p.replace(b, found)
	}
}

// replace changes the lines of a block, and the places of those after it.
func (p *page) replace(b *block, lines []string) {
	grown := len(lines) - (b.end - b.first)
	p.lines = slices.Replace(p.lines, b.first, b.end, lines...)
	for _, other := range p.blocks {
		if other.first >= b.end {
			other.first, other.end = other.first+grown, other.end+grown
		}
	}
	b.end += grown
}

// redirection is where a command writes its output.
var redirection = regexp.MustCompile(` > ([\w.-]+)$`)

// callProgram is where a shell calls generic-dp.
var callProgram = regexp.MustCompile(`(^|[|;&] |\$\()generic-dp `)

// runCommand runs a command with generic-dp, and checks one with another program. It
// returns what it prints.
func (p *page) runCommand(b *block, line int, command string) string {
	command, _, _ = strings.Cut(command, "  #")
	words := strings.Fields(command)
	if len(words) == 0 || strings.HasPrefix(command, "#") {
		return ""
	}
	if words[0] == "sudo" {
		words = words[1:]
	}
	if isPlugin(words) {
		p.checkFlags(line, plugin.NewRoot(version), words[2:])
		return p.runPlugin(b, line, command)
	}
	if words[0] != "generic-dp" {
		p.checkOther(b, line, words)
		return ""
	}
	p.checkFlags(line, newRoot(newFlags()), words[1:])
	isOfHost := slices.Contains([]string{"serve", "status", "doctor", "clean"}, words[1])
	if b.elsewhere || isOfHost && !slices.Contains(words, "--once") {
		return "" // about the host itself, and other tests'
	}
	for _, word := range words {
		if text, err := os.ReadFile(filepath.Join(repository, word)); err == nil {
			file := filepath.Join(p.dir, word)
			must(p.t, os.MkdirAll(filepath.Dir(file), 0o755))
			must(p.t, os.WriteFile(file, text, 0o644))
		}
	}
	cmd := exec.CommandContext(p.t.Context(), "sh", "-c", callProgram.ReplaceAllString(command, "${1}sh "+p.program(b)+" "))
	cmd.Dir = p.dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		p.errorf(line, "%s: %v: %s", command, err, &stderr)
	}
	return string(out)
}

// program returns a shell script in place of generic-dp that runs it on the machine of a
// block, if there is one.
func (p *page) program(b *block) string {
	script := filepath.Join(p.scripts, "generic-dp-"+b.machine)
	if _, err := os.Stat(script); err == nil {
		return script
	}
	program, err := exec.LookPath("generic-dp")
	must(p.t, err)
	text := fmt.Sprintf("exec %s \"$@\"\n", program)
	if b.machine != "" {
		file, err := filepath.Abs(filepath.Join(repository, "testdata/machines", b.machine+".txtar"))
		must(p.t, err)
		archive, err := os.ReadFile(file)
		must(p.t, err)
		dir := filepath.Join(p.scripts, b.machine)
		must(p.t, recording.Unpack(dir, archive))
		text = fmt.Sprintf(`case "$*" in
*--sysfs* | version* | completion* | *--help*) ;;
"serve --no-kubelet"*) set -- "$@" --sysfs %[1]s/sys --dev %[1]s/dev --run-dir %[1]s/links --state-dir %[1]s/state --cdi-dir %[1]s/cdi ;;
devices* | explain* | init*) set -- "$@" --sysfs %[2]s --hwdata %[1]s/none ;;
check*--against*) set -- "$@" --sysfs %[2]s --listen= ;;
*) set -- "$@" --sysfs %[2]s ;;
esac
`, dir, file) + text
	}
	must(p.t, os.WriteFile(script, []byte(text), 0o644))
	return script
}

// generic runs generic-dp on the machine of a block.
func (p *page) generic(b *block, stdin string, args ...string) (string, error) {
	cmd := exec.CommandContext(p.t.Context(), "sh", append([]string{p.program(b)}, args...)...)
	cmd.Dir, cmd.Stdin = p.dir, strings.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s%s", err, out, &stderr)
	}
	return string(out), err
}

var privileges = regexp.MustCompile(`--(?:allow|domains|node-name)=[^\s"'.]+`)

// checkConfig checks a configuration with the flags that its comments name, and notes the
// resources that it has devices for.
func (p *page) checkConfig(b *block, text string) {
	var flags []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "#") {
			flags = append(flags, privileges.FindAllString(line, -1)...)
		}
	}
	if _, err := p.generic(b, text, append([]string{"check", "-"}, flags...)...); err != nil {
		p.errorf(b.first, "%v", err)
		return
	}
	if _, err := p.generic(b, text, "check", "-"); err == nil && len(flags) > 0 {
		p.errorf(b.first, "%v is not needed", flags)
	}
	out, err := p.generic(b, text, append([]string{"devices", "--config", "-", "-o", "json"}, flags...)...)
	if err != nil {
		p.errorf(b.first, "%v", err)
		return
	}
	var list struct {
		Resources []struct {
			Name    string
			Devices []struct{ Health, Reason string }
		}
	}
	must(p.t, json.Unmarshal([]byte(out), &list))
	for _, r := range list.Resources {
		if b.machine != "" && len(r.Devices) == 0 {
			p.errorf(b.first, "%s has no device on %s", r.Name, b.machine)
		}
		for _, d := range r.Devices {
			if d.Health != "Healthy" {
				p.errorf(b.first, "%s on %s: %s", r.Name, b.machine, d.Reason)
			}
		}
		p.sections[b.section].offered = append(p.sections[b.section].offered, r.Name)
	}
}

// checkYAML checks objects of Kubernetes and of tools for it, services of compose, and
// values of the chart.
func (p *page) checkYAML(b *block) {
	decoder := yaml.NewDecoder(strings.NewReader(b.text(p)))
	for {
		var object map[string]any
		if err := decoder.Decode(&object); err != nil {
			if err != io.EOF {
				p.errorf(b.first, "%v", err)
			}
			return
		}
		switch {
		case object["kind"] == "Deployment":
			p.checkStrategy(b, object)
			p.walk(b, object)
		case object["kind"] != nil:
			p.walk(b, object)
		case object["services"] != nil, object["jobs"] != nil: // of compose, or a workflow
			p.walk(b, object)
		default:
			p.checkValues(b, object)
		}
	}
}

// checkStrategy checks that a rollout of a Deployment releases its device before it requests
// it again.
func (p *page) checkStrategy(b *block, deployment map[string]any) {
	spec, _ := deployment["spec"].(map[string]any)
	strategy, _ := spec["strategy"].(map[string]any)
	if strategy["type"] != "Recreate" {
		p.errorf(b.first, "want strategy: {type: Recreate}")
	}
}

// walk notes the resources that an object requests, and checks the values in it.
func (p *page) walk(b *block, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			inner, _ := v.(map[string]any)
			switch {
			case key == "limits" || key == "capacity":
				for name := range inner {
					if strings.Contains(name, "/") {
						p.wanted = append(p.wanted, wanted{b, name})
					}
				}
			case key == "values" && inner != nil, key == "valuesObject":
				p.checkValues(b, inner)
			case key == "devices":
				list, _ := v.([]any)
				for _, device := range list {
					name, _, _ := strings.Cut(fmt.Sprint(device), "=")
					p.wanted = append(p.wanted, wanted{b, name})
				}
			default:
				p.walk(b, v)
			}
		}
	case []any:
		for _, v := range value {
			p.walk(b, v)
		}
	}
}

// checkValues checks the configuration in values of the chart. A test in docs checks the other
// values.
func (p *page) checkValues(b *block, values map[string]any) {
	files, _ := values["config"].(map[string]any)
	for _, text := range files {
		p.checkConfig(b, fmt.Sprint(text))
	}
}

var exampleLink = regexp.MustCompile(`examples/configs/([a-z0-9-]+)\.toml\)`)

// checkResources checks that a configuration offers what pods request: of the page, or an
// example that the section links to, by its stories.
func (p *page) checkResources() {
	stories, err := filepath.Glob(repository + "/examples/testdata/*.txt")
	if err != nil || len(stories) == 0 {
		p.t.Fatalf("stories: %v, %v", stories, err)
	}
	for i := range p.sections {
		s := &p.sections[i]
		for _, m := range exampleLink.FindAllStringSubmatch(strings.Join(s.text, "\n"), -1) {
			for _, file := range stories {
				story, err := txtar.ParseFile(file)
				must(p.t, err)
				if regexp.MustCompile(`(?m)^config: +` + m[1] + `\.toml$`).Match(story.Comment) {
					for _, f := range story.Files {
						s.offered = append(s.offered, f.Name)
					}
				}
			}
		}
	}
	for _, w := range p.wanted {
		offered := p.sections[w.section].offered
		if len(offered) == 0 {
			for _, s := range p.sections {
				offered = append(offered, s.offered...)
			}
		}
		if !slices.Contains(offered, w.name) {
			p.errorf(w.first, "%s is not offered: %q", w.name, offered)
		}
	}
}
