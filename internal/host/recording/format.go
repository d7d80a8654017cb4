package recording

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/tools/txtar"
)

// entry is one file of an archive.
type entry struct {
	name string // "sys/…", "dev/…" or "proc/…"
	kind kind
	text string // content of a file; target of a link
}

type kind byte

const (
	file  kind = iota // an attribute, or a placeholder of a node
	link              // a symbolic link
	dir               // a directory
	mount             // a directory with another file system
)

// The separators of a header, and the content that makes a directory a mount.
const (
	targetSeparator = " -> "
	textSeparator   = " = "
	mountText       = "mount\n"
)

// nodeText is the content of the placeholder of a node.
var nodeText = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(char|block) [0-9]+:[0-9]+\n$`)
})

// format formats an entry as a file of an archive.
func (e entry) format() txtar.File {
	switch e.kind {
	case link:
		return txtar.File{Name: token(e.name) + targetSeparator + token(e.text)}
	case dir:
		return txtar.File{Name: token(e.name + "/")}
	case mount:
		return txtar.File{Name: token(e.name + "/"), Data: []byte(mountText)}
	}
	if !isPlainText(e.text) {
		return txtar.File{Name: token(e.name) + textSeparator + strconv.Quote(e.text)}
	}
	return txtar.File{Name: token(e.name), Data: []byte(e.text)}
}

// parse parses an archive. The result can be written and read below one directory:
// links below sys stay there, and no file is below a link.
func parse(archive []byte) ([]entry, error) {
	var entries []entry
	seen := make(map[string]kind)
	for _, f := range txtar.Parse(archive).Files {
		e, err := parseFile(f)
		if err == nil {
			err = e.check()
		}
		if err == nil {
			err = checkConflict(e, seen)
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", f.Name, err)
		}
		entries = append(entries, e)
	}
	if entries == nil {
		return nil, errors.New("not a recorded machine: want txtar with files below sys and dev")
	}
	return entries, nil
}

// checkConflict rejects an entry that conflicts with those seen, and adds it to them.
func checkConflict(e entry, seen map[string]kind) error {
	if k, known := seen[e.name]; known && (k != dir || e.kind != dir) {
		return errors.New("occurs twice")
	}
	for above := path.Dir(e.name); above != "."; above = path.Dir(above) {
		if k, known := seen[above]; known && k == link {
			return fmt.Errorf("is below the link %q", above)
		} else if known && k == file {
			return fmt.Errorf("is below %q, which is not a directory", above)
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
	if target, ok := strings.CutPrefix(rest, targetSeparator); ok {
		if strings.HasPrefix(target, `"`) {
			target, err = unquote(target)
		}
		return entry{name, link, target}, cmp.Or(err, checkNoContent(content))
	}
	if text, ok := strings.CutPrefix(rest, textSeparator); ok {
		text, err = unquote(text)
		return entry{name, file, text}, cmp.Or(err, checkNoContent(content))
	}
	if rest != "" {
		return entry{}, fmt.Errorf("unexpected %q after the name: want %q or %q", rest, targetSeparator, textSeparator)
	}
	if name, ok := strings.CutSuffix(name, "/"); ok {
		if content == mountText {
			return entry{name: name, kind: mount}, nil
		}
		return entry{name: name, kind: dir}, checkNoContent(content)
	}
	return entry{name, file, content}, nil
}

func checkNoContent(s string) error {
	if strings.TrimSpace(s) != "" {
		return fmt.Errorf("has the content %q: want none", s)
	}
	return nil
}

// check rejects entries that a machine cannot have.
func (e entry) check() error {
	inDev := strings.HasPrefix(e.name, "dev/")
	inProc := strings.HasPrefix(e.name, "proc/")
	if path.Clean(e.name) != e.name || strings.ContainsRune(e.name, 0) || !inDev && !inProc && !strings.HasPrefix(e.name, "sys/") {
		return errors.New("not a path below sys, dev or proc")
	}
	switch {
	case inProc && e.kind != file:
		return errors.New("not a file: want only files below proc")
	case e.kind == link && (e.text == "" || strings.ContainsRune(e.text, 0)):
		return fmt.Errorf("%q cannot be a link target", e.text)
	case e.kind == link && !inDev:
		return e.checkTarget()
	case e.kind == mount && !inDev:
		return errors.New("a mount: want it below dev only")
	case e.kind == file && inDev && !nodeText().MatchString(e.text):
		return fmt.Errorf("%q is not a node: want %q or %q", e.text, "char 188:0\n", "block 8:0\n")
	}
	return nil
}

// checkTarget rejects a link out of sys. The kernel's targets go up first and then down
// (kernfs_get_target_path in fs/kernfs/symlink.c); going up after a name that is itself
// a link would lead elsewhere.
func (e entry) checkTarget() error {
	down := e.text
	for strings.HasPrefix(down, "../") {
		down = down[len("../"):]
	}
	inner := strings.HasPrefix(down, "..") || strings.Contains(down, "/..")
	if path.IsAbs(e.text) || inner || !strings.HasPrefix(e.target(), "sys/") {
		return fmt.Errorf("leads out of sys to %q", e.text)
	}
	return nil
}

// target is the target of a link below sys.
func (e entry) target() string { return path.Join(path.Dir(e.name), e.text) }

// token formats a name or a target unambiguously.
func token(s string) string {
	// The next character may complete a separator at the end of s.
	if isPlain(s) && !strings.HasPrefix(s, `"`) && strings.TrimSpace(s) == s &&
		!strings.Contains(s+" ", targetSeparator) && !strings.Contains(s+" ", textSeparator) {
		return s
	}
	return strconv.Quote(s)
}

// cutToken parses the name at the start of a header.
func cutToken(header string) (name, rest string, err error) {
	if strings.HasPrefix(header, `"`) {
		quoted, err := strconv.QuotedPrefix(header)
		if err != nil {
			return "", "", errors.New("the name is not a Go string")
		}
		name, err = unquote(quoted)
		return name, header[len(quoted):], err
	}
	end := len(header)
	for _, sep := range []string{targetSeparator, textSeparator} {
		if i := strings.Index(header, sep); i >= 0 {
			end = min(end, i)
		}
	}
	return header[:end], header[end:], nil
}

func unquote(s string) (string, error) {
	text, err := strconv.Unquote(s)
	if err != nil {
		return "", fmt.Errorf("%q is not a Go string", s)
	}
	return text, nil
}

// isPlain reports whether s is one line without invisible characters.
func isPlain(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool {
		return !unicode.IsPrint(r)
	}) < 0
}

// isPlainText reports whether s can be the content of a file: lines without invisible
// characters, none of which starts like a header.
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
