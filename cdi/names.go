package cdi

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
)

// The names of spec files begin with filePrefix. Behind it is the mark of the
// installation that owns the file, of markLen hexadecimal digits between
// dashes, or nothing for the default one. What ends in fileSuffix is read by
// runtimes.
const (
	filePrefix = "generic-dp_"
	fileSuffix = ".json"
	markLen    = 8
)

// maxFileName is the longest name of a file in bytes (NAME_MAX in
// include/uapi/linux/limits.h).
const maxFileName = 255

// prefix is what the names of an installation's files begin with. No kind
// begins with a dash, so that one is not read as the mark.
func prefix(owner string) string {
	if owner == "" {
		return filePrefix
	}
	sum := sha256.Sum256([]byte(owner))
	return filePrefix + "-" + hex.EncodeToString(sum[:markLen/2]) + "-"
}

// fileName is the name of the spec file of a kind,
// "generic-dp_example.com_gpu.json". A kind that is too long for a file name is
// named by its hash.
func fileName(owner, kind string) string {
	name := prefix(owner) + strings.ReplaceAll(kind, "/", "_") + fileSuffix
	if len(name) > maxFileName {
		sum := sha256.Sum256([]byte(kind))
		name = prefix(owner) + hex.EncodeToString(sum[:16]) + fileSuffix
	}
	return name
}

// isOwn reports whether this program wrote the spec file of that name, for
// whichever installation.
func isOwn(name string) bool {
	return strings.HasPrefix(name, filePrefix) && strings.HasSuffix(name, fileSuffix)
}

// isOf reports whether the spec file of that name is the owner's.
func isOf(owner, name string) bool { return isOwn(name) && marked(owner, name) }

// tempPattern names files that are being written: hidden, and not ending in
// what runtimes read. isTemp reports whether a name is one of the owner's.
func tempPattern(owner string) string { return "." + prefix(owner) + "*.tmp" }

func isTemp(owner, name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".tmp") && marked(owner, name[1:])
}

// marked reports whether a name begins as those of the owner do.
func marked(owner, name string) bool {
	return strings.HasPrefix(name, prefix(owner)) && (owner != "" || !strings.HasPrefix(name, filePrefix+"-"))
}

// isSpec reports whether runtimes read files of that name.
func isSpec(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".json" || ext == ".yaml"
}
