// Package examples_test serves each example on a machine with its hardware, and compares
// the device lists and responses with a golden file, the story.
package examples_test

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/agent"
	"github.com/generic-dp/generic-dp/internal/host/health"
	"github.com/generic-dp/generic-dp/internal/host/recording"
	"github.com/generic-dp/generic-dp/internal/status"
	"github.com/generic-dp/generic-dp/internal/testing/kubelettest"
)

var update = flag.Bool("update", false, "write the results to the stories in testdata")

// limit is the timeout of each wait.
const limit = 30 * time.Second

// story is one file of testdata: a txtar archive. Lines of its head that begin with one of
// these words configure the test; the rest of the head names the source of the
// expectations.
//
//	config:   file in configs
//	machine:  file in ../testdata/machines, without .txtar
//	allow:    as --allow, optional
//	node:     as --node-name, optional
//	cdi:      directory below testdata/cdi with CDI specs of the host, optional
//
// A section "RESOURCE" is the list of its devices, a section "RESOURCE gives ID ..." the
// response for these slots. Every resource with devices must have a section.
type story struct {
	head    map[string]string
	archive *txtar.Archive
}

func readStory(t *testing.T, file string) story {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	must(t, err)
	s := story{head: map[string]string{}, archive: archive}
	for line := range strings.Lines(string(archive.Comment)) {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "config", "machine", "allow", "node", "cdi":
			s.head[key] = strings.TrimSpace(value)
		}
	}
	return s
}

func TestStories(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("stories: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			s := readStory(t, file)
			n := serve(t, s)
			var listed []string
			for i := range s.archive.Files {
				section := &s.archive.Files[i]
				resource, ids, asks := strings.Cut(section.Name, " gives ")
				found := ""
				if asks {
					found = n.allocate(resource, strings.Fields(ids))
				} else {
					if !*update {
						n.awaitList(resource, string(section.Data))
					}
					found = n.list(resource)
					listed = append(listed, resource)
				}
				if want := string(section.Data); found != want && !*update {
					t.Errorf("%s: found\n%swant\n%s", section.Name, found, want)
				}
				section.Data = []byte(found)
			}
			for name, devices := range n.devices() {
				if len(devices) == 0 || slices.Contains(listed, name) {
					continue
				}
				if *update {
					s.archive.Files = append(s.archive.Files, txtar.File{Name: name, Data: []byte(n.list(name))})
				} else {
					t.Errorf("no section for %s, which lists\n%s", name, n.list(name))
				}
			}
			if *update {
				if err := os.WriteFile(file, txtar.Format(s.archive), 0o644); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Every example has a story, and every story an example.
func TestEveryExampleHasAStory(t *testing.T) {
	t.Parallel()
	stories := map[string]bool{}
	files, err := filepath.Glob("testdata/*.txt")
	must(t, err)
	allowed := map[string]string{}
	for _, file := range files {
		head := readStory(t, file).head
		stories[head["config"]] = true
		allowed[head["config"]] = head["allow"]
	}
	err = filepath.WalkDir("configs", func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !stories[d.Name()] {
			t.Errorf("%s has no story in testdata", path)
		}
		if err != nil || d.IsDir() {
			return err
		}
		// The head says what the story needs.
		text, err := os.ReadFile(path)
		var needs []string
		for _, flag := range regexp.MustCompile(`--allow=[^\s;)]*[^\s;).,]`).FindAllString(string(text), -1) {
			needs = append(needs, strings.TrimPrefix(flag, "--allow="))
		}
		have := words(strings.Join(needs, ","))
		want := words(allowed[d.Name()])
		if _, bad := parseAllow(strings.Join(have, ",")); bad != nil || !slices.Equal(have, want) {
			t.Errorf("%s says that it needs --allow=%q, %v; its story has %q", path, have, bad, want)
		}
		return err
	})
	must(t, err)
}

// words are the different words of a list for --allow.
func words(list string) []string {
	all := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
	slices.Sort(all)
	return slices.Compact(all)
}

// Every row of the table of replaced plugins in docs/migration.md names an example, and every example that says in its head
// that it is like a plugin is there.
func TestReplaces(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/migration.md")
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n## What replaces what\n")
	linked := map[string]bool{}
	link := regexp.MustCompile(`\]\(\.\./examples/(configs/[a-z-]+\.toml)\)`)
	for line := range strings.Lines(section) {
		found := link.FindStringSubmatch(line)
		if row := strings.HasPrefix(line, "| ") && !strings.HasPrefix(line, "| plugin"); row && found == nil {
			t.Errorf("no example in %q", line)
		} else if row {
			linked[found[1]] = true
		}
	}
	for file := range linked {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
	files, err := filepath.Glob("configs/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		head, _, _ := strings.Cut(string(text), "\n[[resource]]")
		if err != nil || regexp.MustCompile(`(?i)replacement for|\bplugin`).MatchString(head) && !linked[file] {
			t.Errorf("%s is like a plugin, and docs/migration.md lacks it: %v", file, err)
		}
	}
}

// node is a machine that serves an example.
type node struct {
	*testing.T
	agent   *agent.Agent
	kubelet *kubelettest.Kubelet
	paths   agent.Paths
}

func serve(t *testing.T, s story) *node {
	t.Helper()
	dir := kubelettest.TempDir(t)
	archive, err := os.ReadFile(filepath.Join("../testdata/machines", s.head["machine"]+".txtar"))
	must(t, err)
	must(t, recording.Unpack(filepath.Join(dir, "host"), archive))
	cdiDir := filepath.Join(dir, "cdi")
	specs := []string{cdiDir}
	if host := s.head["cdi"]; host != "" {
		specs = []string{filepath.Join("testdata/cdi", host), cdiDir}
	}
	n := &node{T: t, paths: agent.Paths{
		KubeletDir: filepath.Join(dir, "kubelet"), PodResources: filepath.Join(dir, "pods.sock"),
		Sysfs: filepath.Join(dir, "host", "sys"), Dev: filepath.Join(dir, "host", "dev"),
		RunDir: filepath.Join(dir, "run"), StateDir: filepath.Join(dir, "state"), CDIDir: cdiDir, SpecDirs: specs,
	}}
	allow, err := parseAllow(s.head["allow"])
	must(t, err)
	n.kubelet = kubelettest.New(kubelettest.Options{Dir: n.paths.KubeletDir, PodResources: n.paths.PodResources})
	must(t, n.kubelet.Start())
	t.Cleanup(n.kubelet.Stop)
	n.agent, err = agent.New(agent.Options{
		Config: filepath.Join("configs", s.head["config"]), Paths: n.paths, NodeName: s.head["node"], Allow: allow,
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.agent.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	n.settle()
	return n
}

// settle waits until the kubelet has every list of the agent.
func (n *node) settle() {
	n.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	select {
	case <-n.agent.Settled():
	case <-ctx.Done():
		n.Fatal("the first scan takes too long")
	}
	err := n.kubelet.WaitFor(ctx, func() bool {
		for name, devices := range n.devices() {
			_, lists := n.kubelet.Latest(name)
			if lists == 0 && len(devices) > 0 {
				return false
			}
		}
		return true
	})
	must(n, err)
	// A failed check does not change the lists.
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for n.checking() {
		select {
		case <-again.C:
		case <-ctx.Done():
			n.Fatal("a first health check takes too long")
		}
	}
}

// awaitList waits for a list. On a busy machine a read of the recording may time out: the
// next scan then finds the rest, which settles first.
func (n *node) awaitList(resource, want string) {
	n.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	// A missing list fails in the comparison.
	_ = n.kubelet.WaitFor(ctx, func() bool { return n.list(resource) == want })
}

// checking reports whether a device's first check is in progress.
func (n *node) checking() bool {
	for _, devices := range n.devices() {
		if slices.ContainsFunc(devices, func(d status.Device) bool { return d.Reason == health.ReasonPending }) {
			return true
		}
	}
	return false
}

// devices are the served devices by resource.
func (n *node) devices() map[string][]status.Device {
	all := map[string][]status.Device{}
	for _, r := range n.agent.Status(context.Background()).Resources {
		all[r.Name] = r.Devices
	}
	return all
}

// list returns the listed devices of a resource: one line each, with the number of slots,
// the NUMA nodes and the reason.
func (n *node) list(resource string) string {
	list, _ := n.kubelet.Latest(resource)
	numa := map[string][]string{}
	for _, d := range list.Devices {
		for _, node := range d.GetTopology().GetNodes() {
			numa[d.GetID()] = append(numa[d.GetID()], fmt.Sprint(node.GetID()))
		}
	}
	var text strings.Builder
	for _, d := range n.devices()[resource] {
		text.WriteString(d.ID)
		if d.Slots != 1 {
			fmt.Fprintf(&text, " slots=%d", d.Slots)
		}
		if nodes := numa[d.ID]; nodes != nil {
			fmt.Fprintf(&text, " numa=%s", strings.Join(nodes, ","))
		}
		if d.Health != status.Healthy {
			fmt.Fprintf(&text, " Unhealthy: %s", reason(d.Reason))
		}
		text.WriteString("\n")
	}
	return text.String()
}

// reason is the reason of an unhealthy device, without the error of the local network.
func reason(text string) string {
	if what, _, found := strings.Cut(text, ": "); found && strings.HasPrefix(what, "tcp ") {
		return what
	}
	return text
}

func parseAllow(list string) (a config.Allow, err error) {
	err = a.Set(list)
	return a, err
}

// must ends the test after an error of its own steps.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
