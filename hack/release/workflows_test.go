package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// pinned is an action at a commit, with its version in a comment.
var pinned = regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

// Actions are pinned by commit, and each job names its permissions.
func TestWorkflows(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("workflows: %q, %v", files, err)
	}
	makefile := readFile(t, "../../Makefile")
	commits := map[string]string{}
	for _, file := range files {
		text := readFile(t, file)
		for _, m := range regexp.MustCompile(`uses: (.*)`).FindAllStringSubmatch(text, -1) {
			if strings.HasPrefix(m[1], "./.github/") {
				continue
			}
			action, commit, _ := strings.Cut(m[1], "@")
			if !pinned.MatchString(m[1]) {
				t.Errorf("%s: %s: want a commit, and its version as a comment", file, m[1])
			} else if known := commits[action]; known != "" && known != commit {
				t.Errorf("%s: %s at %s, want one commit in all workflows, %s", file, action, commit, known)
			}
			commits[action] = commit
		}
		for _, m := range regexp.MustCompile(`make (?:-s )?([a-z0-9-]+)`).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(makefile, "\n"+m[1]+":") {
				t.Errorf("%s: Makefile has no target %s", file, m[1])
			}
		}
		var workflow struct {
			Permissions map[string]string
			Jobs        map[string]struct{ Permissions map[string]string }
		}
		if err := yaml.Unmarshal([]byte(text), &workflow); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if workflow.Permissions == nil || len(workflow.Permissions) > 0 {
			t.Errorf("%s: permissions of the workflow are %v, want {}", file, workflow.Permissions)
		}
		for name, job := range workflow.Jobs {
			if len(job.Permissions) == 0 {
				t.Errorf("%s: job %s names no permissions", file, name)
			}
			for scope, access := range job.Permissions {
				if access == "write" && (filepath.Base(file) != "release.yml" || scope == "contents" && name != "announce") {
					t.Errorf("%s: job %s may write %s, want release.yml alone, and contents in announce alone", file, name, scope)
				}
			}
		}
	}
}
