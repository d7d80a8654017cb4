package manifest

import (
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/generic-dp/generic-dp/config"
)

// position is the position of the text of a file in a manifest.
type position struct {
	// manifest is the path of the manifest.
	manifest string
	// line is the first line of the text, from 1, and indent the number of columns before the
	// text in each line. Quoted and folded texts have other lines than the manifest, so that all
	// their problems have the position of the key, in line.
	line      int
	indent    int
	isLiteral bool
}

// positionOf returns the position of a file. manifest is the path of the manifest, and lines are
// its lines.
func positionOf(manifest string, file *yaml.Node, lines []string) position {
	p := position{
		manifest:  manifest,
		line:      file.Line,
		isLiteral: file.Style&yaml.LiteralStyle != 0,
	}
	if !p.isLiteral {
		return p
	}
	p.line = FirstLine(file)
	// The text may begin with empty lines, or with lines that are indented further than the block.
	for i, text := range strings.Split(file.Value, "\n") {
		at := p.line - 1 + i
		if text == "" || at >= len(lines) {
			continue
		}
		p.indent = indentation(lines[at]) - indentation(text)
		break
	}
	return p
}

// Locate returns a problem of a file with its position in the manifest. A problem of another file,
// or without a file, stays as it is.
func (c *Configuration) Locate(p config.Problem) config.Problem {
	at, isOurs := c.positions[p.File]
	if !isOurs {
		return p
	}
	p.File = at.manifest
	if p.Line > 0 && at.isLiteral {
		p.Line += at.line - 1
		p.Column += at.indent
		return p
	}
	p.Line = at.line
	p.Column = 1
	return p
}

// LocateAll gives problems their positions in the manifest. It changes the elements of the slice.
func (c *Configuration) LocateAll(problems []config.Problem) {
	for i := range problems {
		problems[i] = c.Locate(problems[i])
	}
}

// indentation is the number of spaces and tabs that a line begins with.
func indentation(line string) int {
	return len(line) - len(strings.TrimLeft(line, " \t"))
}
