// Package docs_test checks the values of the chart on the pages. The other checks of the pages are
// tests of the program. This one is apart because the library for schemas takes 0.1 s to start,
// and those tests start the test binary often.
package docs_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// The chart accepts the values on the pages: whole blocks, and values within a HelmRelease of Flux
// or an Application of Argo CD.
func TestValuesOfTheChart(t *testing.T) {
	t.Parallel()
	schema, err := jsonschema.NewCompiler().Compile("../deploy/helm/generic-dp/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, "../README.md") {
		for _, values := range valuesOf(t, page) {
			found++
			if err := schema.Validate(values); err != nil {
				t.Errorf("%s: %v: %v", page, values, err)
			}
		}
	}
	if found == 0 {
		t.Error("no page has values")
	}
}

// valuesOf returns the values of the chart in the YAML blocks of a page.
func valuesOf(t *testing.T, page string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var values []map[string]any
	for _, after := range strings.Split(string(text), "\n```yaml\n")[1:] {
		block, _, _ := strings.Cut(after, "\n```\n")
		decoder := yaml.NewDecoder(strings.NewReader(block))
		for {
			var document map[string]any
			err := decoder.Decode(&document)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v in\n%s", page, err, block)
			}
			values = append(values, valuesIn(document)...)
		}
	}
	return values
}

// valuesIn returns a document that is values of the chart, or the values within an object.
func valuesIn(document map[string]any) []map[string]any {
	isObject := document["kind"] != nil
	isCompose := document["services"] != nil
	isWorkflow := document["jobs"] != nil
	if !isObject && !isCompose && !isWorkflow {
		return []map[string]any{document}
	}
	return nestedValues(document)
}

// nestedValues returns the values of the chart within an object.
func nestedValues(value any) []map[string]any {
	var found []map[string]any
	switch value := value.(type) {
	case map[string]any:
		for key, inner := range value {
			values, isTable := inner.(map[string]any)
			isValues := key == "values" || key == "valuesObject"
			if isTable && isValues {
				found = append(found, values)
				continue
			}
			found = append(found, nestedValues(inner)...)
		}
	case []any:
		for _, inner := range value {
			found = append(found, nestedValues(inner)...)
		}
	}
	return found
}
