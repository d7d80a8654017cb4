package importer

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A text may be in the middle of another file: a string in YAML, the data of a ConfigMap, or a
// heredoc in a script. It is YAML or JSON itself, a command line, or a file of another format.

// mentions are words, one of which every configuration of a device plugin has. They spare
// parsing the other texts of a manifest, many of which are not YAML.
var mentions = []string{"resourcelist", "devicematch", "groups", "configlist", "hostdevices", "akri.sh", "udevrules", "sharing", "migstrategy"}

// mentioned reports whether a text may have a configuration.
func (c *conversion) mentioned(text string) bool {
	if c.searchPlain {
		return strings.Contains(text, "/dev/") || isUdevRules(text)
	}
	text = strings.ToLower(text)
	return slices.ContainsFunc(mentions, func(m string) bool {
		return strings.Contains(text, m)
	})
}

// walkText searches a text: command lines, YAML or JSON, or an assignment of it, as in
// the literals of a ConfigMap generator.
func (c *conversion) walkText(v *value, path string, in *workload) {
	if !c.mentioned(v.Value) || c.walkCommands(v, path, in) {
		return
	}
	isScript := strings.HasPrefix(v.Value, "#!")
	if !strings.ContainsAny(v.Value, ":{") || isScript || v.isWholeInput() {
		return
	}
	name, text, isAssignment := strings.Cut(v.Value, "=")
	if isAssignment && fullMatch(`[\w.-]+`, name) {
		v = v.with(text)
		v.key = name
		c.walkText(v, path+"."+name, in)
		return
	}
	for _, document := range v.documents() {
		if !document.scalar() {
			document.key = v.key
			c.walk(document, path, in)
		}
	}
}

// isWholeInput reports whether the value is the text of the whole input, which was parsed
// before.
func (v *value) isWholeInput() bool {
	return v.Value == v.c.text && v.key == "" && v.parent == ""
}

// yamlLine matches a line that YAML or JSON may have, unlike most lines of other languages
// and flags of a command line.
const yamlLine = `^\s*(-([^-].*)?|---.*|["'[{}\]#].*|[\w./-]+:(\s.*)?)?$`

// embedded returns the configurations in another language, such as Terraform, Nix, a shell
// script or Markdown: blocks of lines, each indented at least as far as the first.
func (c *conversion) embedded() (documents []*value) {
	lines := strings.Split(c.text, "\n")
	yamlLine := regexp.MustCompile(yamlLine)
	for start := 0; start < len(lines); {
		end := start
		for end < len(lines) && continuesBlock(yamlLine, lines[start], lines[end]) {
			end++
		}
		text := strings.Join(lines[start:end], "\n")
		if c.mentioned(text) || strings.Contains(text, "/dev/") {
			documents = append(documents, c.parseBlock(text, start)...)
		}
		start = end + 1
	}
	return documents
}

// parseBlock parses a block of lines. Only a block that has a configuration of a device
// plugin reports its syntax errors.
func (c *conversion) parseBlock(text string, linesBefore int) []*value {
	before := c.problems
	documents := c.parse(text, "", linesBefore)
	if !c.mentioned(text) {
		c.problems = before
	}
	return documents
}

// continuesBlock reports whether a line may belong to the YAML that begins with the first
// line.
func continuesBlock(yamlLine *regexp.Regexp, first, line string) bool {
	text := strings.TrimSpace(line)
	isAssignment := strings.Contains(text, " = ")
	isStatement := strings.HasSuffix(text, ";")
	if isAssignment || isStatement || !yamlLine.MatchString(text) {
		return false
	}
	return text == "" || indentation(line) >= indentation(first)
}

// indentation is the number of spaces and tabs that a line begins with.
func indentation(line string) int {
	return len(line) - len(strings.TrimLeft(line, " \t"))
}

// with is the value with another text.
func (v *value) with(text string) *value {
	node := *v.Node
	node.Value = text
	copied := *v
	copied.Node = &node
	return &copied
}

// only is the mapping with some of its keys.
func (v *value) only(keys ...string) *value {
	node := *v.Node
	node.Content = nil
	for i := 0; i+1 < len(v.Content); i += 2 {
		if slices.Contains(keys, v.Content[i].Value) {
			node.Content = append(node.Content, v.Content[i], v.Content[i+1])
		}
	}
	copied := *v
	copied.Node = &node
	return &copied
}

// encoded is a value made of maps and lists, all of whose messages name one line.
func (v *value) encoded(content any, line int) *value {
	var node yaml.Node
	if err := node.Encode(content); err != nil {
		panic(err) // maps, lists and strings always encode
	}
	setLine(&node, line)
	return &value{Node: &node, c: v.c}
}

// setLine sets the line of a node and of everything in it.
func setLine(n *yaml.Node, line int) {
	n.Line = line
	for _, below := range n.Content {
		setLine(below, line)
	}
}

// string is the text of a scalar, otherwise empty.
func (v *value) string() string {
	if v.scalar() {
		return v.Value
	}
	return ""
}

// sortedNumbers lists the keys of a mapping, which are numbers, in their order.
func sortedNumbers(mapping map[string]any) []string {
	return slices.SortedFunc(maps.Keys(mapping), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
}
