package status_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

var metricName = regexp.MustCompile(`generic_dp_[a-z_]+`)

// The dashboard and the alerts query metrics that a scrape has.
func TestDashboardAndAlertsQueryExistingMetrics(t *testing.T) {
	t.Parallel()
	s := newServer(t, &state{})
	s.countAll()
	_, body := s.get("/metrics", "")
	types := map[string]string{}
	for line := range strings.Lines(body) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" {
			types[f[2]] = f[3]
		}
	}
	for file, read := range map[string]func(*testing.T, []byte) []string{
		"../../deploy/grafana/generic-dp.json":                       expressionsOfDashboard,
		"../../deploy/helm/generic-dp/templates/prometheusrule.yaml": expressionsOfRules,
	} {
		text, err := os.ReadFile(file)
		must(t, err)
		expressions := read(t, text)
		if len(expressions) < 5 {
			t.Errorf("%s: %d expressions", file, len(expressions))
		}
		for _, e := range expressions {
			for _, name := range metricName.FindAllString(e, -1) {
				base, isBucket := strings.CutSuffix(name, "_bucket")
				base, isCount := strings.CutSuffix(base, "_count")
				isOfHistogram := isBucket || isCount
				if types[base] == "" || isOfHistogram != (types[base] == "histogram") {
					t.Errorf("%s: %s: no metric %s, or another type: %q", file, e, name, types[base])
				}
			}
		}
	}
}

func expressionsOfDashboard(t *testing.T, text []byte) []string {
	t.Helper()
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Definition string }
		}
	}
	must(t, json.Unmarshal(text, &d))
	var all []string
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			if !metricName.MatchString(target.Expr) {
				t.Errorf("panel %q: %q has none of our metrics", p.Title, target.Expr)
			}
			all = append(all, target.Expr)
		}
	}
	for _, v := range d.Templating.List {
		all = append(all, v.Definition)
	}
	return all
}

func expressionsOfRules(_ *testing.T, text []byte) []string {
	var all []string
	for line := range strings.Lines(string(text)) {
		if _, e, ok := strings.Cut(line, "expr: "); ok {
			all = append(all, e)
		}
	}
	return all
}

// Each alert links a section of the documentation that exists.
func TestAlertsHaveRunbooks(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../../deploy/helm/generic-dp/templates/prometheusrule.yaml")
	must(t, err)
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	must(t, err)
	anchors := map[string]bool{}
	for line := range strings.Lines(string(page)) {
		if title, isHeading := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); isHeading && line[0] == '#' {
			anchors[strings.ToLower(strings.ReplaceAll(strings.TrimSpace(title), " ", "-"))] = true
		}
	}
	alerts := strings.Split(string(rules), "- alert: ")[1:]
	for _, alert := range alerts {
		name, _, _ := strings.Cut(alert, "\n")
		_, anchor, _ := strings.Cut(alert, "runbook_url: \"{{ $runbook }}#")
		anchor, _, _ = strings.Cut(anchor, `"`)
		if !anchors[anchor] {
			t.Errorf("%s: docs/troubleshooting.md has no section %q", name, anchor)
		}
	}
	if len(alerts) < 6 {
		t.Errorf("%d alerts", len(alerts))
	}
}
