package vm

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kernel is an unpacked kernel package of Debian, see deps.sh.
type kernel struct {
	image   string
	modules map[string]string // paths by name, "_" for "-"
	builtin map[string]bool
}

func openKernel(dir string) (*kernel, error) {
	builtin, _ := filepath.Glob(dir + "/lib/modules/*/modules.builtin")
	if len(builtin) != 1 {
		return nil, fmt.Errorf("no kernel in %s: run deps.sh", dir)
	}
	k := &kernel{image: dir + "/vmlinux", modules: map[string]string{}, builtin: map[string]bool{}}
	text, err := os.ReadFile(builtin[0])
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		k.builtin[moduleName(strings.TrimSpace(line))] = true
	}
	err = filepath.WalkDir(filepath.Dir(builtin[0]), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".ko" {
			k.modules[moduleName(path)] = path
		}
		return err
	})
	return k, err
}

func moduleName(path string) string {
	return strings.ReplaceAll(strings.TrimSuffix(filepath.Base(path), ".ko"), "-", "_")
}

// order returns the files of modules and of their dependencies, in load order.
func (k *kernel) order(names []string) ([]string, error) {
	var files []string
	done := map[string]bool{}
	var visit func(string) error
	visit = func(name string) error {
		name = moduleName(name)
		if done[name] || k.builtin[name] {
			return nil
		}
		done[name] = true
		file := k.modules[name]
		if file == "" {
			return fmt.Errorf("the kernel has no module %s", name)
		}
		needs, err := dependencies(file)
		if err != nil {
			return err
		}
		for _, n := range needs {
			if err := visit(n); err != nil {
				return err
			}
		}
		files = append(files, file)
		return nil
	}
	for _, name := range names {
		if err := visit(name); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// dependencies reads the dependencies of a module. The package has no modules.dep:
// depmod makes it at installation.
func dependencies(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("%s: no .modinfo", file)
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := strings.CutPrefix(string(entry), "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}

// writeInitramfs writes the initial file system: the programs by name, and the sets of
// modules below /modules.
func writeInitramfs(out io.Writer, k *kernel, programs map[string]string, sets map[string][]string) error {
	w := &cpio{out: out}
	for _, dir := range []string{"dev", "etc", "proc", "run", "sys", "modules"} {
		w.dir(dir)
	}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		w.file(name, programs[name])
	}
	for _, set := range slices.Sorted(maps.Keys(sets)) {
		files, err := k.order(sets[set])
		if err != nil {
			return err
		}
		w.dir("modules/" + set)
		for i, file := range files {
			w.file(fmt.Sprintf("modules/%s/%03d-%s", set, i, filepath.Base(file)), file)
		}
	}
	return w.close()
}

// cpio writes an archive in the format "newc", see the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst.
type cpio struct {
	out   io.Writer
	inode int
	err   error
}

func (c *cpio) dir(name string) { c.entry(name, 0o040755, nil) }

func (c *cpio) file(name, path string) {
	data, err := os.ReadFile(path)
	if err != nil && c.err == nil {
		c.err = err
	}
	c.entry(name, 0o100755, data)
}

func (c *cpio) entry(name string, mode int, data []byte) {
	c.inode++
	var b bytes.Buffer
	b.WriteString("070701")
	for _, field := range []int{c.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0} {
		fmt.Fprintf(&b, "%08X", field)
	}
	b.WriteString(name + "\x00")
	b.Write(padding(b.Len()))
	b.Write(data)
	b.Write(padding(len(data)))
	if c.err == nil {
		_, c.err = c.out.Write(b.Bytes())
	}
}

func (c *cpio) close() error {
	c.entry("TRAILER!!!", 0, nil)
	return c.err
}

func padding(n int) []byte { return make([]byte, -n&3) }
