package importer

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// Configurations are often in a command line: of the plugin itself, of helm install, and of
// docker run. Those in a list of arguments are words already (walkArgs). Those in a text, such
// as a script, a README or the command of a service, are split as a shell does (walkCommands).
// Words of other commands do not matter, since only flags with a configuration are used.

// otherFlags are flags of generic-device-plugin that change no device, with their defaults
// and the flags of generic-dp that replace them.
var otherFlags = map[string]struct{ initial, ours string }{
	"plugin-directory": {"/var/lib/kubelet/device-plugins", "--kubelet-dir"},
	"listen":           {":8080", "--listen"},
	"log-level":        {"info", "--log-level"},
}

// configFlags are the flags of plugins that say something about their resources.
var configFlags = []string{"device", "domain", "resource-prefix", "config", "config-file"}

// walkArgs searches a list, which may be a command line: --device holds a configuration,
// other flags are about one.
func (c *conversion) walkArgs(args []*value, path string, in *workload) {
	for i := 0; i < len(args); i++ {
		arg := args[i]
		name, text, hasValue := strings.Cut(arg.string(), "=")
		flag := strings.TrimLeft(name, "-")
		_, isOther := otherFlags[flag]
		isKnown := isOther || slices.Contains(configFlags, flag)
		if flag == name || !isKnown {
			c.walk(arg, path, in)
			continue
		}
		if !hasValue {
			i++
			if i >= len(args) || !args[i].scalar() {
				arg.report("%s without a value", name)
				return
			}
			arg = args[i]
			text = arg.Value
		}
		c.setFlag(arg.with(text), flag, path, in)
	}
}

// setFlag records a flag of a plugin with its value.
func (c *conversion) setFlag(arg *value, flag, path string, in *workload) {
	switch flag {
	case "domain":
		in.domain = arg.Value
	case "resource-prefix":
		in.prefix = arg.Value
	case "config", "config-file":
		in.config = arg.Value
	case "device":
		if c.searchPlain {
			return // of docker run, which composeFormat reads
		}
		for _, document := range arg.documents() {
			c.found(source{
				value:    document,
				format:   Squat,
				flag:     true,
				path:     path,
				workload: in,
			})
		}
	default:
		in.setOther(flag, arg.Value)
	}
}

// walkCommands searches the command lines in a text, and reports whether it found any that
// configure devices.
func (c *conversion) walkCommands(v *value, path string, in *workload) bool {
	if !strings.Contains(v.Value, "--") {
		return false
	}
	found := false
	lines := strings.Split(v.Value, "\n")
	for first := 0; first < len(lines); first++ {
		if !strings.Contains(lines[first], "--") && !strings.HasSuffix(strings.TrimSpace(lines[first]), `\`) {
			continue
		}
		words, after := splitCommand(lines, first)
		if c.walkCommand(v, words, first, path, in) {
			found = true
			first = after - 1
		}
	}
	return found
}

// walkCommand searches a command line that begins at a line of a text.
func (c *conversion) walkCommand(v *value, words []string, line int, path string, in *workload) bool {
	if len(words) == 0 || words[0] == "-" {
		return false // an item of a list in YAML, whose quotes a shell would take away
	}
	switch {
	case c.searchPlain:
		services := composeOfRun(words)
		if services == nil {
			return false
		}
		c.walk(v.encoded(services, v.firstLine()+line), path, in)
		return true
	case isSquatCommand(words):
		var args []*value
		for _, w := range words {
			arg := v.with(w)
			arg.Line = v.firstLine() + line
			args = append(args, arg)
		}
		c.walkArgs(args, path, in)
		return true
	}
	values, lost := helmValues(words)
	if values == nil {
		return false
	}
	for _, text := range lost {
		c.differs("line %d: differs: %q after a comma is another value to helm --set, and not a part of the rule: imported without it, as helm does: write \\, for a comma in a rule", v.firstLine()+line, text)
	}
	c.walk(v.encoded(values, v.firstLine()+line), path, in)
	return true
}

// isSquatCommand reports whether a command line has the configuration of a device for
// generic-device-plugin, unlike the --device of docker run.
func isSquatCommand(words []string) bool {
	for i, w := range words {
		text, isFlag := strings.CutPrefix(w, "--device=")
		if w == "--device" && i+1 < len(words) {
			isFlag = true
			text = words[i+1]
		}
		if isFlag && strings.Contains(text, "groups") {
			return true
		}
	}
	return false
}

// maxCommandLines limits a command line: without it, every apostrophe in a long text would be
// followed to the end.
const maxCommandLines = 200

// splitCommand splits the command line that begins at a line into words, as a shell does,
// without expansions. It returns the index of the line after the command. A command with a
// quote that is not closed, which is probably an apostrophe in a sentence, has no words.
func splitCommand(lines []string, first int) (words []string, after int) {
	var s shellSplitter
	last := min(len(lines), first+maxCommandLines)
	for i := first; i < last; i++ {
		s.line(lines[i])
		if s.quote == 0 && !s.continued {
			return s.words, i + 1
		}
	}
	if s.quote != 0 {
		return nil, first + 1
	}
	return s.words, last
}

// shellSplitter splits lines into words (Shell Command Language of POSIX, 2.2 and 2.3).
type shellSplitter struct {
	words []string
	// word is the current word; open is set while there is one.
	word strings.Builder
	open bool
	// quote is the quotation mark that is open, or 0.
	quote rune
	// continued is set after a line that ends in a backslash.
	continued bool
	// ended is set after an operator such as ";", which ends the command.
	ended bool
}

// line splits a line. Inside double quotes, a backslash only escapes the characters that are
// special there.
func (s *shellSplitter) line(text string) {
	s.continued = false
	runes := []rune(strings.TrimRight(text, "\r"))
	for i := 0; i < len(runes) && !s.ended; i++ {
		r := runes[i]
		isLast := i == len(runes)-1
		switch {
		case r == '\\' && s.quote != '\'' && isLast:
			s.continued = true
			return
		case r == '\\' && s.quote == 0:
			i++
			s.add(runes[i])
		case r == '\\' && s.quote == '"' && strings.ContainsRune("\"\\$`", runes[i+1]):
			i++
			s.add(runes[i])
		case r == s.quote:
			s.quote = 0
		case s.quote != 0:
			s.add(r)
		case r == '\'' || r == '"':
			s.quote = r
			s.open = true
		case unicode.IsSpace(r):
			s.endWord()
		case strings.ContainsRune(";|&", r):
			s.ended = true
		default:
			s.add(r)
		}
	}
	if s.quote != 0 {
		s.add('\n')
		return
	}
	s.endWord()
}

// add adds a character to the current word, and begins a word if there is none: an empty pair
// of quotes is a word as well.
func (s *shellSplitter) add(r rune) {
	s.open = true
	s.word.WriteRune(r)
}

// endWord ends the current word, if there is one.
func (s *shellSplitter) endWord() {
	if s.open {
		s.words = append(s.words, s.word.String())
	}
	s.word.Reset()
	s.open = false
}

// helmSet matches an assignment of helm --set: the path of keys and indexes, and the value.
const helmSet = `(?s)^([\w.\[\]-]+)=(.*)$`

// helmValues are the values of the chart that the flags --set of a command line set, nil if there is
// neither a rule of udev nor an expression of smarter-device-manager. lost are parts of rules that
// helm takes for other values.
func helmValues(words []string) (values map[string]any, lost []string) {
	values = make(map[string]any)
	hasDevices := false
	for i, w := range words {
		flag, text, hasValue := strings.Cut(w, "=")
		if flag != "--set" && flag != "--set-string" {
			continue
		}
		if !hasValue && i+1 < len(words) {
			text = words[i+1]
		}
		for _, assignment := range splitAssignments(text) {
			m := regexp.MustCompile(helmSet).FindStringSubmatch(assignment)
			if m == nil {
				lost = append(lost, strings.TrimSpace(assignment))
				continue
			}
			isRule := strings.Contains(m[1], "udevRules[")
			isExpression := strings.HasSuffix(m[1], "].devicematch")
			hasDevices = hasDevices || isRule || isExpression
			keys := strings.FieldsFunc(m[1], func(r rune) bool {
				return strings.ContainsRune(".[]", r)
			})
			setValue(values, keys, m[2])
		}
	}
	if !hasDevices {
		return nil, nil
	}
	return foldLists(values).(map[string]any), lost
}

// splitAssignments splits a value of --set at commas. A backslash makes a comma part of the
// value (strvals in helm.sh/helm/v3/pkg).
func splitAssignments(text string) []string {
	var all []string
	var current strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text):
			i++
			current.WriteByte(text[i])
		case text[i] == ',':
			all = append(all, current.String())
			current.Reset()
		default:
			current.WriteByte(text[i])
		}
	}
	return append(all, current.String())
}

// setValue sets a value below keys. Indexes of lists are keys, too.
func setValue(values map[string]any, keys []string, text string) {
	if len(keys) == 0 {
		return
	}
	if len(keys) == 1 {
		values[keys[0]] = text
		return
	}
	below, ok := values[keys[0]].(map[string]any)
	if !ok {
		below = make(map[string]any)
		values[keys[0]] = below
	}
	setValue(below, keys[1:], text)
}

// foldLists replaces mappings with the keys 0, 1, ... by lists.
func foldLists(v any) any {
	mapping, ok := v.(map[string]any)
	if !ok {
		return v
	}
	isList := true
	for key, element := range mapping {
		mapping[key] = foldLists(element)
		isList = isList && fullMatch(`[0-9]+`, key)
	}
	if !isList || len(mapping) == 0 {
		return mapping
	}
	keys := sortedNumbers(mapping)
	list := make([]any, 0, len(keys))
	for _, key := range keys {
		list = append(list, mapping[key])
	}
	return list
}
