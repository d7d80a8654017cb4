package machine

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/tools/txtar"
)

// entry is one file of an archive.
type entry struct {
	name string // "sys/…", "dev/…" or "proc/…"
	kind kind
	text string // the content of a file; what a link says
}

type kind byte

const (
	file  kind = iota // an attribute, or what stands for a node
	link              // a symbolic link
	dir               // a directory
	mount             // a directory with another file system
)

// The separators of a header, and the content that makes a directory a mount.
const (
	toTarget  = " -> "
	toText    = " = "
	mountText = "mount\n"
)

// nodeText is the content of a file that stands for a node.
var nodeText = regexp.MustCompile(`^(char|block) [0-9]+:[0-9]+\n$`)

// format writes an entry as a file of an archive.
func (e entry) format() txtar.File {
	switch e.kind {
	case link:
		return txtar.File{Name: token(e.name) + toTarget + token(e.text)}
	case dir:
		return txtar.File{Name: token(e.name + "/")}
	case mount:
		return txtar.File{Name: token(e.name + "/"), Data: []byte(mountText)}
	}
	if !isPlainText(e.text) {
		return txtar.File{Name: token(e.name) + toText + strconv.Quote(e.text)}
	}
	return txtar.File{Name: token(e.name), Data: []byte(e.text)}
}

// parse reads an archive. What it returns can be written below one directory
// and read from there, and neither leads out of it: links below sys stay
// there, and nothing lies behind a link.
func parse(archive []byte) ([]entry, error) {
	var entries []entry
	seen := make(map[string]kind)
	for _, f := range txtar.Parse(archive).Files {
		e, err := parseFile(f)
		if err == nil {
			err = e.check()
		}
		if err == nil {
			err = place(e, seen)
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", f.Name, err)
		}
		entries = append(entries, e)
	}
	if entries == nil {
		return nil, errors.New("no recorded machine: want txtar with files below sys and dev")
	}
	return entries, nil
}

// place notes where an entry is, unless something is in its way.
func place(e entry, seen map[string]kind) error {
	if k, known := seen[e.name]; known && (k != dir || e.kind != dir) {
		return errors.New("is there twice")
	}
	for above := path.Dir(e.name); above != "."; above = path.Dir(above) {
		switch k, known := seen[above]; {
		case known && k == link:
			return fmt.Errorf("lies behind the link %q", above)
		case known && k == file:
			return fmt.Errorf("lies below %q, which is no directory", above)
		}
	}
	seen[e.name] = e.kind
	return nil
}

func parseFile(f txtar.File) (entry, error) {
	name, rest, err := cutToken(f.Name)
	if err != nil {
		return entry{}, err
	}
	content := string(f.Data)
	if target, ok := strings.CutPrefix(rest, toTarget); ok {
		if strings.HasPrefix(target, `"`) {
			target, err = unquote(target)
		}
		return entry{name, link, target}, cmp.Or(err, noContent(content))
	}
	if text, ok := strings.CutPrefix(rest, toText); ok {
		text, err = unquote(text)
		return entry{name, file, text}, cmp.Or(err, noContent(content))
	}
	if rest != "" {
		return entry{}, fmt.Errorf("%q after the name is not understood: want %q or %q", rest, toTarget, toText)
	}
	if name, ok := strings.CutSuffix(name, "/"); ok {
		if content == mountText {
			return entry{name: name, kind: mount}, nil
		}
		return entry{name: name, kind: dir}, noContent(content)
	}
	return entry{name, file, content}, nil
}

func noContent(s string) error {
	if strings.TrimSpace(s) != "" {
		return fmt.Errorf("has the content %q: want none here", s)
	}
	return nil
}

// check refuses what a machine does not have.
func (e entry) check() error {
	inDev, inProc := strings.HasPrefix(e.name, "dev/"), strings.HasPrefix(e.name, "proc/")
	if path.Clean(e.name) != e.name || strings.ContainsRune(e.name, 0) || !inDev && !inProc && !strings.HasPrefix(e.name, "sys/") {
		return errors.New("not a path below sys, dev or proc")
	}
	switch {
	case inProc && e.kind != file:
		return errors.New("no file: want nothing else below proc")
	case e.kind == link && (e.text == "" || strings.ContainsRune(e.text, 0)):
		return fmt.Errorf("no link can say %q", e.text)
	case e.kind == link && !inDev:
		return e.checkTarget()
	case e.kind == mount && !inDev:
		return errors.New("a mount: want it below dev only")
	case e.kind == file && inDev && !nodeText.MatchString(e.text):
		return fmt.Errorf("%q is not a node: want %q or %q", e.text, "char 188:0\n", "block 8:0\n")
	}
	return nil
}

// checkTarget refuses a link that leads out of sys. The kernel goes up first
// and then down (kernfs_get_target_path in fs/kernfs/symlink.c); going up
// after a name that is itself a link would lead elsewhere than it looks.
func (e entry) checkTarget() error {
	down := e.text
	for strings.HasPrefix(down, "../") {
		down = down[len("../"):]
	}
	inner := strings.HasPrefix(down, "..") || strings.Contains(down, "/..")
	if path.IsAbs(e.text) || inner || !strings.HasPrefix(e.target(), "sys/") {
		return fmt.Errorf("leads out of sys, to %q", e.text)
	}
	return nil
}

// target is where a link below sys leads.
func (e entry) target() string { return path.Join(path.Dir(e.name), e.text) }

// token writes a name or a target so that it can't be misread.
func token(s string) string {
	// What follows may complete a separator that s ends with all but a space of.
	if isPlain(s) && !strings.HasPrefix(s, `"`) && strings.TrimSpace(s) == s &&
		!strings.Contains(s+" ", toTarget) && !strings.Contains(s+" ", toText) {
		return s
	}
	return strconv.Quote(s)
}

// cutToken reads the name at the start of a header.
func cutToken(header string) (name, rest string, err error) {
	if strings.HasPrefix(header, `"`) {
		quoted, err := strconv.QuotedPrefix(header)
		if err != nil {
			return "", "", errors.New("its name is not a string of Go")
		}
		name, err = unquote(quoted)
		return name, header[len(quoted):], err
	}
	end := len(header)
	for _, sep := range []string{toTarget, toText} {
		if i := strings.Index(header, sep); i >= 0 {
			end = min(end, i)
		}
	}
	return header[:end], header[end:], nil
}

func unquote(s string) (string, error) {
	text, err := strconv.Unquote(s)
	if err != nil {
		return "", fmt.Errorf("%q is not a string of Go", s)
	}
	return text, nil
}

// isPlain reports whether s is one line that shows all that it is.
func isPlain(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// isPlainText reports whether s can be the content of a file: lines that show
// all that they are, none of which begins like the name of a file.
func isPlainText(s string) bool {
	if s != "" && !strings.HasSuffix(s, "\n") {
		return false
	}
	for l := range strings.Lines(s) {
		l = strings.TrimSuffix(l, "\n")
		if !isPlain(l) || strings.HasPrefix(l, "-- ") {
			return false
		}
	}
	return true
}
