package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// docs/reference.md has every flag with its default and its usage text. With -update the test
// writes the tables. It is not parallel, because TestDocs writes the same page.
func TestDocsOfFlags(t *testing.T) {
	const name = repository + "/docs/reference.md"
	content, err := os.ReadFile(name)
	must(t, err)
	page := string(content)
	for _, table := range flagTables() {
		if strings.Contains(page, "\n"+table+"\n") {
			continue
		}
		if !*update {
			t.Errorf("docs/reference.md lacks this table, see -update:\n%s", table)
			continue
		}
		header, _, _ := strings.Cut(table, "\n")
		before, after, found := strings.Cut(page, "\n"+header+"\n")
		if !found {
			t.Fatalf("docs/reference.md has no table %q", header)
		}
		_, after, _ = strings.Cut(after, "\n\n")
		page = before + "\n" + table + "\n" + after
	}
	if *update {
		if err := os.WriteFile(name, []byte(page), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// flagTables returns the shared flags and the flags of single commands as tables in Markdown.
func flagTables() []string {
	var shared, single strings.Builder
	shared.WriteString("| flag | default | meaning |\n|---|---|---|\n")
	single.WriteString("| command | flag | meaning | default |\n|---|---|---|---|\n")
	f := newFlags()
	f.all.VisitAll(func(flag *pflag.Flag) {
		usage, value := usageAndDefault(flag)
		fmt.Fprintf(&shared, "| `--%s` | %s | %s |\n", flag.Name, value, usage)
	})
	for _, cmd := range newRoot(f).Commands() {
		if cmd.HasSubCommands() || cmd.Hidden {
			continue
		}
		cmd.Flags().VisitAll(func(flag *pflag.Flag) {
			isShared := f.all.Lookup(flag.Name) == flag
			if isShared || flag.Name == "help" || flag.Name == "output" {
				return
			}
			usage, value := usageAndDefault(flag)
			fmt.Fprintf(&single, "| `%s` | `--%s` | %s | %s |\n", cmd.Name(), flag.Name, usage, value)
		})
	}
	return []string{shared.String(), single.String()}
}

// usageAndDefault returns the usage text and the default of a flag as cells of a table. Some
// usage texts describe the default in parentheses.
func usageAndDefault(flag *pflag.Flag) (string, string) {
	usage, value, isDescribed := strings.Cut(strings.TrimSuffix(flag.Usage, ")"), " (default ")
	if !isDescribed {
		usage = flag.Usage
		value = flag.DefValue
	}
	usage = strings.ReplaceAll(usage, "|", `\|`)
	if value == "" || value == "false" {
		return usage, ""
	}
	return usage, "`" + strings.Trim(value, "`") + "`"
}
