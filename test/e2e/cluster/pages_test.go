//go:build cluster

package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/product"
	"github.com/generic-dp/generic-dp/test/e2e/wait"
)

// pages are the pages whose blocks run here. The first two begin with an empty directory, the
// others with a checkout and an imported image.
var pages = []string{"README.md", "docs/install.md", "docs/tutorial.md"}

// TestPages pastes the blocks of pages into a shell on a node with a stick: those after
// <!-- run: cluster -->, and the files of <!-- file: NAME -->. TestDocs checks that each block
// of such a page runs here or there, or has a reason why it does not.
func TestPages(t *testing.T) {
	t.Parallel()
	for i, page := range pages {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			s := newShell(t)
			if i > 1 {
				s.ImportProduct(t)
				s.paste(t, "git clone "+upstream+" checkout\ncd checkout\n")
			}
			for _, b := range pageBlocks(t, page) {
				switch {
				case b.file != "":
					s.write(t, b.file, b.text)
				case b.reads:
					wait.Until(t, limit, b.text, func() error { return s.try(b.text) })
				default:
					s.paste(t, b.text)
				}
			}
		})
	}
	t.Run("other pages", func(t *testing.T) {
		others, err := filepath.Glob(product.Repository("docs", "*.md"))
		if err != nil || len(others) == 0 {
			t.Fatalf("pages: %q, %v", others, err)
		}
		for _, page := range others {
			page = filepath.Join("docs", filepath.Base(page))
			if !slices.Contains(pages, page) && len(pageBlocks(t, page)) > 0 {
				t.Errorf("%s has <!-- run: cluster -->, but its blocks do not run here", page)
			}
		}
	})
}

// upstream is the repository that the pages clone.
const upstream = "https://github.com/generic-dp/generic-dp"

// pageBlock is a file, or commands. The result of commands that only read may be late.
type pageBlock struct {
	file, text string
	reads      bool
}

var runBlock = regexp.MustCompile("(?ms)^<!-- (?:run: cluster|file: (\\S+)) -->\n```[a-z]+\n(.*?)^```$")

// pageBlocks are the blocks of a page that run here. They are none if no commands do.
func pageBlocks(t *testing.T, page string) (blocks []pageBlock) {
	t.Helper()
	text, err := os.ReadFile(product.Repository(page))
	must(t, err)
	if !strings.Contains(string(text), "<!-- run: cluster -->") {
		return nil
	}
	for _, m := range runBlock.FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, pageBlock{
			file:  m[1],
			text:  m[2],
			reads: strings.HasPrefix(m[2], "kubectl describe "),
		})
	}
	return blocks
}

// shell is a user's shell on the node of a cluster.
type shell struct {
	*cluster.Cluster
	bin, dir string
	env      []string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{Cluster: cluster.New(t), bin: t.TempDir(), dir: t.TempDir()}
	host := s.Hardware(t)
	host.Plug(fixture.Stick{Port: "1-1", ID: "10c4:ea60", Serial: "c83e0bd33a17ec11b5a3d1a47d5ffe3d", TTY: "ttyUSB0"})
	s.NameImage(t, "docker.io/koenkk/zigbee2mqtt:2")
	// The kernel's /sys has no stick.
	values := filepath.Join(s.bin, "fixture.yaml")
	s.script(t, "fixture.yaml", fmt.Sprintf(`extraArgs: [--sysfs=/fixture/sys]
extraVolumes: [{name: fixture, hostPath: {path: %s}}]
extraVolumeMounts: [{name: fixture, mountPath: /fixture/sys, readOnly: true}]
`, s.Sysfs()))
	s.script(t, "sudo", `exec "$@"`)
	s.script(t, "kubectl", fmt.Sprintf(`exec %s "$@"`, s.Tool("kubectl")))
	s.script(t, "helm", fmt.Sprintf(`case $1 in install | upgrade) set -- "$@" --values %s ;; esac
exec %s "$@"`, values, s.Tool("helm")))
	// The runtime of the bed has another address, and no overlay file system.
	s.script(t, "ctr", fmt.Sprintf(`args=()
for word; do
	args+=("$word")
	if [ "$word" = import ]; then args+=(--snapshotter native); fi
done
exec %s --address %s "${args[@]}"`, s.Tool("ctr"), s.ContainerdSocket()))
	s.env = []string{
		"PATH=" + s.bin + ":" + os.Getenv("PATH"),
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + checkout(t) + ".insteadOf", "GIT_CONFIG_VALUE_0=" + upstream,
	}
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		value, err := exec.Command("go", "env", name).Output()
		must(t, err)
		s.env = append(s.env, name+"="+strings.TrimSpace(string(value)))
	}
	return s
}

// checkout is a repository with the files under test, committed or not.
func checkout(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script := `cd "$1"
git ls-files -z --cached --others --exclude-standard --deduplicate | xargs -0 cp --parents -t "$2"
cd "$2"
git init --quiet
git add --all
git -c user.name=e2e -c user.email=e2e@localhost commit --quiet --message "files under test"`
	if out, err := exec.Command("sh", "-e", "-c", script, "sh", product.Repository(), dir).CombinedOutput(); err != nil {
		t.Fatalf("copy the repository: %v\n%s", err, out)
	}
	return dir
}

// script makes a program that the blocks find in PATH, or a file beside it.
func (s *shell) script(t *testing.T, name, text string) {
	t.Helper()
	if !strings.Contains(name, ".") {
		text = "#!/bin/bash\n" + text + "\n"
	}
	must(t, os.WriteFile(filepath.Join(s.bin, name), []byte(text), 0o755))
}

func (s *shell) write(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644))
}

// paste runs commands, of which none may fail. The next ones begin in the directory where these
// end.
func (s *shell) paste(t *testing.T, commands string) {
	t.Helper()
	began := time.Now()
	must(t, s.try(commands))
	first, _, _ := strings.Cut(commands, "\n")
	t.Logf("%v: %s", time.Since(began).Round(100*time.Millisecond), first)
}

func (s *shell) try(commands string) error {
	end := filepath.Join(s.bin, "end.txt")
	script := fmt.Sprintf("cd %s\n%s\npwd > %s\n", s.dir, commands, end)
	args := append(slices.Clone(s.env), "KUBECONFIG="+s.Kubeconfig(), "bash", "-e", "-o", "pipefail", "-c", script)
	if out, err := s.Try("", "/usr/bin/env", args...); err != nil {
		return fmt.Errorf("%s\n%w\n%s", commands, err, out)
	}
	dir, err := os.ReadFile(end)
	s.dir = strings.TrimSpace(string(dir))
	return err
}
