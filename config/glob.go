package config

import (
	"path"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/pattern"
)

// devDir is where device nodes are. Paths are the host's, wherever its /dev
// is mounted.
const devDir = "/dev/"

// nodeGlob selects device nodes by their paths.
var nodeGlob = kind{
	mode: pattern.Path, want: `a path below /dev or a pattern such as "/dev/ttyUSB*", or a list of them`,
	check: func(a pattern.Alternative) (rule, hint string) {
		elements := a.Shape()
		if strings.HasPrefix(elements, devDir) && path.Clean(elements) == elements {
			return "", ""
		}
		switch before, after, below := strings.Cut(a.String(), devDir); {
		case slices.Contains(strings.Split(elements, "/"), ".."):
			return `has "..": want a path below /dev without it`, ""
		case strings.HasPrefix(elements, devDir) && strings.HasSuffix(elements, "/"):
			return "names a directory: want the nodes in it", didYouMean(strings.TrimRight(a.String(), "/") + "/*")
		case strings.HasPrefix(elements, devDir):
			return "is not a clean path: want single slashes and no \".\"", ""
		case below && before != "":
			return "is not below /dev: want the host's own path", didYouMean(devDir + after)
		case strings.HasPrefix(elements, "/sys/"):
			return "is not below /dev: want the path of a device node", "hardware is selected by usb and pci"
		case strings.HasPrefix(elements, "/"):
			return "is not below /dev: want the path of a device node", ""
		default:
			return `is not below /dev: want a path such as "/dev/ttyUSB*"`, didYouMean(devDir + strings.TrimPrefix(a.String(), "dev/"))
		}
	},
}

// pathGlob selects any paths: files and directories to mount.
var pathGlob = kind{
	mode: pattern.Path, want: "an absolute path or pattern",
	check: func(a pattern.Alternative) (rule, hint string) {
		elements := a.Shape()
		if !strings.HasPrefix(elements, "/") || path.Clean(elements) != elements {
			return `is not an absolute, clean path: want one such as "/opt/vendor/*.so"`, ""
		}
		return "", ""
	},
}
