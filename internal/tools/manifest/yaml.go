package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/generic-dp/generic-dp/internal/order"
)

// maxSize is the largest text that is decoded, in bytes. A configuration has at most 1 MiB, and escapes
// of JSON double it. The rest is for the other objects of the manifest.
const maxSize = 4 << 20

// Documents decodes the YAML documents of a text, which begins after a number of lines of the input.
// JSON is accepted as well. Nodes have the lines of the input, and scalars the text as it is written.
func Documents(text string, linesBefore int) ([]*yaml.Node, error) {
	if len(text) > maxSize {
		return nil, fmt.Errorf("line 1: invalid YAML: longer than %d bytes", maxSize)
	}
	var documents []*yaml.Node
	decoder := yaml.NewDecoder(strings.NewReader(untabJSON(text)))
	for {
		var n yaml.Node
		err := decodeNode(decoder, &n)
		if errors.Is(err, io.EOF) {
			return documents, nil
		}
		if err != nil {
			return nil, syntaxError(err, text, linesBefore)
		}
		moveDown(&n, linesBefore)
		if n.Kind == yaml.DocumentNode && len(n.Content) == 1 {
			documents = append(documents, Resolve(n.Content[0]))
		}
	}
}

// untabJSON replaces the tabs of indentation of JSON, which YAML does not accept.
func untabJSON(text string) string {
	isJSON := strings.HasPrefix(strings.TrimSpace(text), "{") || strings.HasPrefix(strings.TrimSpace(text), "[")
	if !isJSON {
		return text
	}
	indentation := regexp.MustCompile(`(?m)^[ \t]+`)
	return indentation.ReplaceAllStringFunc(text, func(indent string) string {
		return strings.ReplaceAll(indent, "\t", " ")
	})
}

// decodeNode decodes one document.
func decodeNode(decoder *yaml.Decoder, n *yaml.Node) error {
	if err := decoder.Decode(n); err != nil {
		return err
	}
	// Decoding finds anchors that contain themselves and aliases without end. Errors of
	// types do not matter: a mapping may have a list as a key.
	err := n.Decode(new(any))
	if errors.As(err, new(*yaml.TypeError)) {
		return nil
	}
	return err
}

// moveDown adds a number of lines to the lines of a node.
func moveDown(n *yaml.Node, lines int) {
	n.Line += lines
	for _, below := range n.Content {
		moveDown(below, lines)
	}
}

// linePrefix matches the position in messages of the library.
const linePrefix = `^line (\d+): `

// syntaxError returns the error of the library with the line of the input.
func syntaxError(err error, text string, linesBefore int) error {
	line := 1
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if m := regexp.MustCompile(linePrefix).FindStringSubmatch(message); m != nil {
		line, _ = strconv.Atoi(m[1])
		message = message[len(m[0]):]
	}
	lines := strings.Split(text, "\n")
	hasTab := line <= len(lines) && strings.HasPrefix(strings.TrimLeft(lines[line-1], " "), "\t")
	if hasTab {
		message += ": the line begins with a tab, and YAML is indented by spaces"
	}
	if strings.Contains(text, "{{") {
		message += ": render a template first, such as with helm template"
	}
	return fmt.Errorf("line %d: invalid YAML: %s", linesBefore+line, message)
}

// Resolve returns the target of an alias, and other nodes as they are.
func Resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// FirstLine returns the line of the input with the first line of a scalar's text: a block scalar
// starts on the line after its "|".
func FirstLine(n *yaml.Node) int {
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return n.Line + 1
	}
	return n.Line
}

// Field is a key of a mapping with its value.
type Field struct {
	Key string
	*yaml.Node
}

// Fields lists the fields of a mapping in the order of the input, including merged fields ("<<")
// and without null. The error is about a key that is set twice; other keys are listed even then.
func Fields(mapping *yaml.Node) ([]Field, error) {
	var nodes map[string]yaml.Node
	err := mapping.Decode(&nodes)
	if types := new(yaml.TypeError); errors.As(err, &types) {
		message := regexp.MustCompile(linePrefix).ReplaceAllString(types.Errors[0], "")
		err = errors.New(message)
	}
	var fields []Field
	for key, n := range nodes {
		f := Field{key, Resolve(&n)}
		if f.ShortTag() != "!!null" {
			fields = append(fields, f)
		}
	}
	order.Sort(fields, compareFields)
	return fields, err
}

// compareFields orders fields by their place. Merged fields have the place of their anchor, and
// one place may have several, so that the key decides at last.
func compareFields(a, b Field) int {
	byLine := cmp.Compare(a.Line, b.Line)
	byColumn := cmp.Compare(a.Column, b.Column)
	return cmp.Or(byLine, byColumn, cmp.Compare(a.Key, b.Key))
}

// objectName returns the kind and name of an object of the Kubernetes API, such as
// "ConfigMap/generic-dp". It is empty if the mapping is not an object with both.
func objectName(mapping *yaml.Node) string {
	var object struct {
		Kind     string
		Metadata struct{ Name string }
	}
	// In an object of the API, both are texts. An error leaves them empty.
	_ = mapping.Decode(&object)
	if object.Kind == "" || object.Metadata.Name == "" {
		return ""
	}
	return object.Kind + "/" + object.Metadata.Name
}

// LastApplied is an annotation of kubectl, which has the whole object once more.
const LastApplied = "kubectl.kubernetes.io/last-applied-configuration"
