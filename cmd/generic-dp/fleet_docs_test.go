package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// isPlugin reports whether a command of a page is one of kubectl generic-dp.
func isPlugin(words []string) bool {
	return len(words) > 2 && words[0] == "kubectl" && words[1] == "generic-dp"
}

// runPlugin runs a command of kubectl generic-dp on the cluster of the documentation. In a block of
// sh it only has to exist, unless it converts files.
func (p *page) runPlugin(b *block, line int, command string) string {
	readsFiles := slices.Contains([]string{"import", "schema", "classes"}, strings.Fields(command)[2])
	if b.elsewhere || b.language != "console" && !readsFiles {
		return ""
	}
	var dirs []string
	for _, name := range []string{"base", "docs"} {
		dir, err := filepath.Abs("testdata/fleet/" + name)
		must(p.t, err)
		dirs = append(dirs, dir)
	}
	machines, err := filepath.Abs(repository + "/testdata/machines")
	must(p.t, err)
	cmd := exec.CommandContext(p.t.Context(), "sh", "-c", strings.Replace(command, "kubectl generic-dp", pluginName, 1))
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "CLUSTER="+strings.Join(dirs, ":"), "MACHINES="+machines)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	// An exit status other than 0 is a result of diff and find.
	if err != nil && stderr.Len() > 0 {
		p.errorf(line, "%s: %v: %s", command, err, &stderr)
	}
	return string(out)
}
