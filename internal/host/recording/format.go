package recording

import (
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

// entry is one file of an archive. Record makes entries of the reads of a scan, and parse makes
// equal entries of the archive.
type entry struct {
	name string // "sys/…", "dev/…", "proc/…" or "host/…"
	kind kind
	text string // content of a file; target of a link
}

// kind is the kind of an entry.
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

// format formats an entry as a file of an archive. A txtar file has only a name and a content, so
// that the kind is part of the name.
func (e entry) format() txtar.File {
	switch e.kind {
	case link:
		return txtar.File{Name: e.name + targetSeparator + e.text}
	case dir:
		return txtar.File{Name: e.name + "/"}
	case mount:
		return txtar.File{Name: e.name + "/", Data: []byte(mountText)}
	}
	// txtar adds a missing line break at the end, and a line may look like a header.
	if !isPlainText(e.text) {
		return txtar.File{Name: e.name + textSeparator + strconv.Quote(e.text)}
	}
	return txtar.File{Name: e.name, Data: []byte(e.text)}
}

// parse parses an archive. The result can be written and read below one directory:
// links below sys stay there, and no file is below a link.
func parse(archive []byte) ([]entry, error) {
	var entries []entry
	seen := make(map[string]kind)
	for _, f := range txtar.Parse(archive).Files {
		e, err := parseFile(f)
		if err == nil {
			err = e.check(seen)
		}
		if err != nil {
			return nil, fmt.Errorf("%q: %w", f.Name, err)
		}
		entries = append(entries, e)
	}
	// Any text without headers is a txtar archive without files.
	if entries == nil {
		return nil, errors.New("not a recorded machine: want txtar with files below sys and dev")
	}
	return entries, nil
}

// check rejects an entry that a machine cannot have or that conflicts with those seen, and adds it to
// them. It cannot find an entry that is above an earlier entry: such an archive fails when it is unpacked.
func (e entry) check(seen map[string]kind) error {
	if err := e.checkAlone(); err != nil {
		return err
	}
	earlier, isKnown := seen[e.name]
	areDirs := earlier == dir && e.kind == dir
	if isKnown && !areDirs {
		return errors.New("occurs twice")
	}
	for above := path.Dir(e.name); above != "."; above = path.Dir(above) {
		parent, isKnown := seen[above]
		if !isKnown {
			continue
		}
		switch parent {
		case link:
			return fmt.Errorf("is below the link %q", above)
		case file:
			return fmt.Errorf("is below %q, which is not a directory", above)
		}
	}
	seen[e.name] = e.kind
	return nil
}

// parseFile parses one file of an archive, by the separator after its name. It accepts any name,
// which check rejects if a machine cannot have it.
func parseFile(f txtar.File) (entry, error) {
	content := string(f.Data)
	if name, quoted, ok := strings.Cut(f.Name, textSeparator); ok {
		text, err := strconv.Unquote(quoted)
		if err != nil {
			return entry{}, fmt.Errorf("%q is not a Go string", quoted)
		}
		return entry{name, file, text}, checkNoContent(content)
	}
	if name, target, ok := strings.Cut(f.Name, targetSeparator); ok {
		return entry{name, link, target}, checkNoContent(content)
	}
	if name, ok := strings.CutSuffix(f.Name, "/"); ok {
		if content == mountText {
			return entry{name: name, kind: mount}, nil
		}
		return entry{name: name, kind: dir}, checkNoContent(content)
	}
	return entry{f.Name, file, content}, nil
}

// checkNoContent rejects the content of an entry that has none. A blank line before the next
// header is allowed, since people edit archives.
func checkNoContent(s string) error {
	if strings.TrimSpace(s) != "" {
		return fmt.Errorf("has the content %q: want none", s)
	}
	return nil
}

// checkAlone rejects entries that a machine cannot have.
func (e entry) checkAlone() error {
	top, _, _ := strings.Cut(e.name, "/")
	// A clean path has no "..", except at its beginning, where no top directory is.
	isBelowTop := strings.Contains(e.name, "/") && path.Clean(e.name) == e.name
	if !isBelowTop {
		return errNotBelow
	}
	isAmbiguous := !isSimple(e.name) || e.kind == link && !isSimple(e.text)
	if isAmbiguous {
		return errors.New("has a name or a target that an archive cannot have")
	}
	isProc := top == "proc"
	if isProc && e.kind != file {
		// Only single files of /proc are recorded, and their directories are implied.
		return errors.New("only files are allowed below proc")
	}
	if isProc {
		return nil
	}
	if top == "host" {
		return e.checkFile()
	}
	isDev := top == "dev"
	if !isDev && top != "sys" {
		return errNotBelow
	}
	switch e.kind {
	case link:
		return e.checkTarget(isDev)
	case mount:
		if !isDev {
			return errors.New("mounts are only allowed below dev")
		}
	case file:
		if isDev && !nodeText().MatchString(e.text) {
			return fmt.Errorf("%q is not a node: want %q or %q", e.text, "char 188:0\n", "block 8:0\n")
		}
	}
	return nil
}

var errNotBelow = errors.New("not a path below sys, dev, proc or host")

// checkFile rejects entries of other files than names of files and directories.
func (e entry) checkFile() error {
	isName := e.kind == dir || e.kind == file && e.text == ""
	if !isName {
		return errors.New("only names of files and directories are allowed below host")
	}
	return nil
}

// checkTarget rejects a link out of sys. Links below dev
// may point anywhere: a scan resolves them without the kernel, and only to nodes that it knows. The
// targets of the kernel in sys go up first and then down (kernfs_get_target_path in
// fs/kernfs/symlink.c); going up after a name that is itself a link would lead elsewhere.
func (e entry) checkTarget(isDev bool) error {
	if isDev {
		return nil
	}
	down := e.text
	for strings.HasPrefix(down, "../") {
		down = down[len("../"):]
	}
	goesUpAgain := strings.HasPrefix(down, "..") || strings.Contains(down, "/..")
	staysInSys := !path.IsAbs(e.text) && strings.HasPrefix(e.target(), "sys/")
	if goesUpAgain || !staysInSys {
		return fmt.Errorf("leads out of sys to %q", e.text)
	}
	return nil
}

// target returns the path of the target of a link below sys, relative to the root of the archive.
func (e entry) target() string {
	return path.Join(path.Dir(e.name), e.text)
}

// isSimple reports whether a name or a target is unambiguous in a header.
func isSimple(s string) bool {
	spaced := " " + s + " "
	hasSeparator := strings.Contains(spaced, targetSeparator) || strings.Contains(spaced, textSeparator)
	hasSpaceAround := strings.TrimSpace(s) != s
	if s == "" || hasSeparator || hasSpaceAround {
		return false
	}
	return isPlain(s)
}

// isPlain reports whether s is one line without invisible characters.
func isPlain(s string) bool {
	isInvisible := func(r rune) bool {
		return !unicode.IsPrint(r)
	}
	return utf8.ValidString(s) && !strings.ContainsFunc(s, isInvisible)
}

// isPlainText reports whether s can be the content of a file: lines without invisible characters,
// none of which starts like a header. An empty text is one.
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
