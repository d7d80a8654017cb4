package recording

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/inventory"
	"github.com/generic-dp/generic-dp/internal/host/sysfs"
	"github.com/generic-dp/generic-dp/internal/order"
)

// record returns the reads of a scan and the names of files as entries, sorted by name. A nil redact keeps
// everything.
func record(r *inventory.Reading, files []string, redact *redaction) []entry {
	// Several paths of sysfs may be one real path. Their entries are equal.
	byName := make(map[string]entry)
	for _, e := range devEntries(r, redact) {
		byName[e.name] = e
	}
	for _, e := range sysEntries(r, redact) {
		byName[e.name] = e
	}
	for p, lines := range r.Proc {
		name := "proc/" + p
		byName[name] = entry{name: name, text: redact.sysfs(lines)}
	}
	for _, f := range files {
		p, isDir := strings.CutSuffix(f, "/")
		e := entry{name: "host" + redact.file(p)}
		inSys, isOfSys := strings.CutPrefix(p, "/sys/")
		if isOfSys {
			inSys = realPath(r.Sysfs.Links, inSys)
			if !strings.HasPrefix(inSys, "devices/") { // a scan reads the names of devices
				inSys = redact.file(inSys)
			}
			e.name = "sys/" + redact.sysfs(inSys)
		}
		if isDir {
			e.kind = dir
		}
		// A file of sysfs that the scan has read keeps its content.
		_, isRead := byName[e.name]
		if !isRead {
			byName[e.name] = e
		}
	}
	all := slices.Collect(maps.Values(byName))
	sortByDirectory(all)
	// The entries are sorted now, as withoutFullDirs requires.
	return withoutFullDirs(all)
}

// devEntries returns the files below /dev.
func devEntries(r *inventory.Reading, redact *redaction) []entry {
	var all []entry
	name := func(p string) string {
		// Names in an archive have no leading "/".
		return redact.path(p)[1:]
	}
	for _, d := range r.Snapshot.Dirs[1:] { // the first is /dev itself
		all = append(all, entry{name: name(d), kind: dir})
	}
	for _, d := range r.Mounts {
		all = append(all, entry{name: name(d), kind: mount})
	}
	// Targets are kept as they are, so that a scan of the recording resolves them as on the host.
	for p, target := range r.Links {
		all = append(all, entry{
			name: name(p),
			kind: link,
			text: redact.target(p, target),
		})
	}
	for _, n := range r.Snapshot.Nodes {
		word := "char"
		if n.Type == device.BlockNode {
			word = "block"
		}
		text := fmt.Sprintf("%s %d:%d\n", word, n.Major, n.Minor)
		all = append(all, entry{name: name(n.Path), text: text})
	}
	return all
}

// sysEntries returns the files below /sys by their real paths, because no file of an archive is below a
// link.
func sysEntries(r *inventory.Reading, redact *redaction) []entry {
	var all []entry
	links := r.Sysfs.Links
	name := func(p string) string {
		return "sys/" + redact.sysfs(realPath(links, p))
	}
	for d := range r.Sysfs.Dirs {
		all = append(all, entry{name: name(d), kind: dir})
	}
	for p, target := range links {
		all = append(all, entry{
			name: name(p),
			kind: link,
			text: redact.sysfs(target),
		})
	}
	for p, text := range r.Sysfs.Attrs {
		redacted, isKept := redact.attr(realPath(links, p), text)
		if isKept {
			all = append(all, entry{name: name(p), text: redacted})
		}
	}
	return all
}

// realPath replaces the links on the way to a file by their targets. The last element of the result may be a
// link. The scan has read every link whose name is informative, such as "firmware_node".
func realPath(links map[string]string, p string) string {
	dir, ok := sysfs.Follow("", path.Dir(p), func(p string) (string, bool) {
		target, isLink := links[p]
		return target, isLink
	})
	// A cycle of links ends here. Any path of the cycle will do.
	if !ok {
		return p
	}
	return path.Join(dir, path.Base(p))
}

// sortByDirectory sorts entries so that the content of a directory follows it.
func sortByDirectory(entries []entry) {
	order.Sort(entries, func(a, b entry) int {
		return slices.Compare(strings.Split(a.name, "/"), strings.Split(b.name, "/"))
	})
}

// withoutFullDirs drops directories with content, because their files imply them. A mount stays,
// because its files do not imply that it is one.
func withoutFullDirs(sorted []entry) []entry {
	var kept []entry
	for i, e := range sorted {
		isLast := i+1 == len(sorted)
		hasContent := !isLast && strings.HasPrefix(sorted[i+1].name, e.name+"/")
		if e.kind == dir && hasContent {
			continue
		}
		kept = append(kept, e)
	}
	return kept
}
