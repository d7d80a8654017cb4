package sysfstest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/generic-dp/generic-dp/inventory"
)

// The attributes and links of a device directory that are recorded. They are
// what a scan can ask for, and "name" and "type" for the reader.
var (
	recordedAttrs = []string{
		"vendor", "device", "subsystem_vendor", "subsystem_device", "class", "revision", "modalias", "numa_node", "sriov_totalvfs",
		"idVendor", "idProduct", "serial", "manufacturer", "product", "bDeviceClass", "speed", "bInterfaceNumber", "bInterfaceClass",
		"port_number", "index", "name", "uevent",
	}
	recordedLinks = []string{"driver", "subsystem", "iommu_group", "physfn"}
)

// Record reads a host and returns its archive, which Unpack takes: all that a
// scan of it sees, and the comment in front.
func Record(ctx context.Context, host inventory.Options, comment string) ([]byte, error) {
	snap, err := inventory.New(host).Scan(ctx)
	if err != nil {
		return nil, err
	}
	r := &recorder{sys: cmp.Or(host.Sysfs, "/sys"), dev: cmp.Or(host.Dev, "/dev"), files: make(map[string]string)}
	for _, n := range snap.Nodes {
		word, dir := "char", "dev/char/"
		if n.Type == 'b' {
			word, dir = "block", "dev/block/"
		}
		number := fmt.Sprintf("%d:%d", n.Major, n.Minor)
		r.files[n.Path[1:]] = word + " " + number + "\n"
		if n.SysPath != "" {
			r.link(dir + number)
			r.device(n.SysPath)
		}
	}
	for _, l := range snap.Links {
		target, err := os.Readlink(r.dev + strings.TrimPrefix(l.Path, "/dev"))
		if err != nil {
			return nil, err
		}
		r.files[l.Path[1:]+" -> "+target] = ""
	}
	for _, d := range snap.Dirs[1:] {
		r.dir(d[1:])
	}
	for _, bus := range []string{"pci", "usb"} {
		dir := "bus/" + bus + "/devices"
		entries, err := os.ReadDir(r.sys + "/" + dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if target := r.link(dir + "/" + e.Name()); target != "" {
				r.device(path.Join(dir, target))
			}
		}
	}
	return r.archive(comment), nil
}

type recorder struct {
	sys, dev string
	files    map[string]string // content by name
}

// link records a link below sys and returns its target, "" if there is none.
func (r *recorder) link(name string) string {
	target, err := os.Readlink(r.sys + "/" + name)
	if err != nil {
		return ""
	}
	r.files["sys/"+name+" -> "+target] = ""
	return target
}

// device records the directory of a device and those above it.
func (r *recorder) device(dir string) {
	for ; dir != "devices" && dir != "."; dir = path.Dir(dir) {
		if _, known := r.files["sys/"+dir+"/"]; known {
			return
		}
		r.dir("sys/" + dir)
		for _, name := range recordedAttrs {
			text, err := os.ReadFile(r.sys + "/" + dir + "/" + name)
			// A line that looks like the start of a file would be one.
			if err != nil || len(text) == 0 || strings.HasPrefix(string(text), "-- ") || strings.Contains(string(text), "\n-- ") {
				continue
			}
			r.files["sys/"+dir+"/"+name] = string(text)
		}
		for _, name := range recordedLinks {
			r.link(dir + "/" + name)
		}
		entries, err := os.ReadDir(r.sys + "/" + dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), "virtfn") {
				r.link(dir + "/" + e.Name())
			}
		}
	}
}

func (r *recorder) dir(name string) { r.files[name+"/"] = "" }

// archive returns all by name. Directories that have something in them need
// no entry.
func (r *recorder) archive(comment string) []byte {
	names := make([]string, 0, len(r.files))
	for name := range r.files {
		names = append(names, name)
	}
	slices.Sort(names)
	ar := &txtar.Archive{Comment: []byte(comment)}
	for i, name := range names {
		if strings.HasSuffix(name, "/") && i+1 < len(names) && strings.HasPrefix(names[i+1], name) {
			continue
		}
		ar.Files = append(ar.Files, txtar.File{Name: name, Data: []byte(r.files[name])})
	}
	return txtar.Format(ar)
}
