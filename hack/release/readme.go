package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	readmeName = "README.md"
	// The table of values is between these lines of the chart's README.
	tableBegin = "<!-- values: written by make manifests from values.yaml -->\n"
	tableEnd   = "<!-- end of values -->\n"
)

// readme is the chart's README with a current table of values.
func (r *release) readme() ([]byte, error) {
	readme, err := os.ReadFile(r.chart(readmeName))
	if err != nil {
		return nil, err
	}
	values, err := os.ReadFile(r.chart("values.yaml"))
	if err != nil {
		return nil, err
	}
	before, rest, begins := bytes.Cut(readme, []byte(tableBegin))
	_, after, ends := bytes.Cut(rest, []byte(tableEnd))
	if !begins || !ends {
		return nil, fmt.Errorf("%s: want the lines %q and %q", r.chart(readmeName), tableBegin, tableEnd)
	}
	table, err := valuesTable(values)
	if err != nil {
		return nil, fmt.Errorf("values.yaml: %w", err)
	}
	return fmt.Appendf(nil, "%s%s%s%s%s", before, tableBegin, table, tableEnd, after), nil
}

// valuesTable documents every value by the comment above it.
func valuesTable(values []byte) (string, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(values, &doc); err != nil {
		return "", err
	}
	table := "| value | default | |\n|---|---|---|\n"
	err := valueRows(&table, "", doc.Content[0])
	return table, err
}

func valueRows(table *string, prefix string, mapping *yaml.Node) error {
	for i := 0; i < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := prefix + key.Value
		comment := strings.ReplaceAll(strings.TrimPrefix(key.HeadComment, "# "), "\n# ", " ")
		comment = strings.ReplaceAll(comment, "|", `\|`)
		// A mapping without comments is one value.
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Content[0].HeadComment != "" {
			if comment != "" {
				*table += fmt.Sprintf("| `%s` | | %s |\n", name, comment)
			}
			if err := valueRows(table, name+".", value); err != nil {
				return err
			}
			continue
		}
		if comment == "" {
			return fmt.Errorf("line %d: %s has no comment", key.Line, name)
		}
		var content any
		if err := value.Decode(&content); err != nil {
			return err
		}
		text, err := json.Marshal(content)
		if err != nil {
			return err
		}
		*table += fmt.Sprintf("| `%s` | `%s` | %s |\n", name, text, comment)
	}
	return nil
}
