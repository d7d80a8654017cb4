package config

import (
	"regexp"
	"slices"
	"strings"
)

var (
	// referenceKey is a line of the reference with a key: the dotted key, its
	// value and the comment behind it.
	referenceKey = regexp.MustCompile(`^([A-Za-z_.]+)\S* = (.*?)(?:\s+# (.*))?$`)
	// listedKey is a line of a comment that says what a key of the table
	// means, and listedMore one that goes on with it.
	listedKey  = regexp.MustCompile(`^#   ([a-z_]+)  +(\S.*)$`)
	listedMore = regexp.MustCompile(`^#    +(\S.*)$`)
)

// commentsOf is what the comments of a reference say of each key of a language,
// by the way from the top: "resource.match.usb.id".
func commentsOf(reference string, language *schema) map[string]string {
	comments := make(map[string]string)
	set := func(way, comment string) {
		if comments[way] == "" {
			comments[way] = comment
		}
	}
	var block []string
	way := ""
	for line := range strings.Lines(reference) {
		line = strings.TrimRight(line, "\n")
		found := referenceKey.FindStringSubmatch(line)
		switch {
		case strings.HasPrefix(line, "#"):
			block = append(block, line)
			continue
		case line == "[[resource]]":
			set("resource", textOf(block, ""))
			way = "resource."
		case found != nil:
			key := language.known(way + found[1])
			above := key[:max(strings.LastIndexByte(key, '.'), 0)]
			name := strings.TrimPrefix(key[len(above):], ".")
			if found[3] != "" {
				// A comment behind the key leaves the one above to its table.
				set(key, found[3])
				set(above, textOf(block, name))
			} else {
				set(key, textOf(block, name))
			}
			for k, text := range listedIn(block) {
				set(key+"."+k, text)
			}
		}
		block = nil
	}
	return comments
}

// known is a dotted key as far as it is of the language: behind that are keys
// of the user's own.
func (s *schema) known(dotted string) string {
	var way []string
	for name := range strings.SplitSeq(dotted, ".") {
		if s == nil || !slices.Contains(s.keys, name) {
			break
		}
		way = append(way, name)
		s = s.sub[name]
	}
	return strings.Join(way, ".")
}

// textOf is what a block of comment says of a key: the paragraph that begins
// with its name, else the first, without keys that it lists.
func textOf(block []string, name string) string {
	paragraphs := []string{""}
	for _, line := range block {
		text := strings.TrimSpace(strings.TrimPrefix(line, "#"))
		last := &paragraphs[len(paragraphs)-1]
		switch {
		case text == "":
			paragraphs = append(paragraphs, "")
		case strings.HasPrefix(line, "#   "):
		case *last == "":
			*last = text
		default:
			*last += " " + text
		}
	}
	text := paragraphs[0]
	for _, p := range paragraphs {
		if own, ok := strings.CutPrefix(p, name+": "); ok && name != "" {
			text = own
		}
	}
	// "The keys of one:" is about the list that was left out.
	if i := strings.LastIndex(text, ". "); i >= 0 && strings.HasSuffix(text, ":") {
		text = text[:i+1]
	}
	return text
}

// listedIn is what a block of comment lists of the keys of a table.
func listedIn(block []string) map[string]string {
	listed := make(map[string]string)
	last := ""
	for _, line := range block {
		if found := listedKey.FindStringSubmatch(line); found != nil {
			last = found[1]
			listed[last] = found[2]
		} else if found := listedMore.FindStringSubmatch(line); found != nil && last != "" {
			listed[last] += " " + found[1]
		} else {
			last = ""
		}
	}
	return listed
}
