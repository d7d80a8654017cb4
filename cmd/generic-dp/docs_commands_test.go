package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
	if !slices.Contains(others, verb) {
		p.errorf(line, "%q is not among the commands that are known not to run here", verb)
	}
	inside := slices.Index(words, "--")
	if inside >= 0 && inside+1 < len(words) && words[inside+1] == "/generic-dp" {
		p.checkFlags(line, words[inside+2:])
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
		case (before == "-n" || before == "--namespace") && (words[0] == "kubectl" || words[0] == "helm") && word != "generic-dp":
			p.errorf(line, "namespace %s: want generic-dp", word)
		case repositoryPath.MatchString(word):
			if _, err := os.Stat(filepath.Join(repository, word)); err != nil {
				p.errorf(line, "%v", err)
			}
		case before == "-f" || before == "--values":
			if _, err := os.Stat(filepath.Join(p.dir, word)); err != nil {
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
	if err != nil {
		p.t.Fatal(err)
	}
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
	if err != nil {
		p.t.Fatal(err)
	}
	var value any
	if err := yaml.Unmarshal(text, &value); err != nil {
		p.t.Fatal(err)
	}
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
