package inventory

import (
	"bufio"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/generic-dp/generic-dp/sysfs"
)

const hostSysfs = "/sys"

// procOf returns the /proc that belongs to a sysfs: this kernel's for this kernel's
// own, and the directory beside it for every other, such as that of a recorded machine,
// of which the running host says nothing.
func procOf(root string) string {
	if root == hostSysfs || sysfs.New(root).Kernel() {
		return "/proc"
	}
	return filepath.Join(filepath.Dir(filepath.Clean(root)), "proc")
}

// proc reads files below /proc that have one record a line.
type proc struct {
	root  string
	trace *procTrace // nil: nothing is kept
}

// procTrace collects the lines that a scan has made use of, by file.
type procTrace struct {
	mu   sync.Mutex
	kept map[string]string
}

func (t *procTrace) keep(file, lines string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept[file] = lines
}

// lines returns what was kept, by file.
func (t *procTrace) lines() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.kept)
}

// each calls use for every line of a file, which returns what of the line matters
// to the scan, as a line that another scan takes for the same: the rest is
// nobody's business and in no recording. A file that is not there has no lines.
func (p proc) each(file string, use func(line []byte) (matters string)) error {
	f, err := os.Open(filepath.Join(p.root, file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var kept strings.Builder
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if line := use(lines.Bytes()); line != "" && p.trace != nil {
			kept.WriteString(line + "\n")
		}
	}
	if kept.Len() > 0 {
		p.trace.keep(file, kept.String())
	}
	return lines.Err()
}
