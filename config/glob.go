package config

import (
	"errors"
	"path"
	"slices"
	"strings"
)

// devDir is where device nodes are. Paths are the host's, wherever its /dev
// is mounted.
const devDir = "/dev/"

// nodeGlob selects device nodes by their paths.
var nodeGlob = kind{
	mode: pathMode, want: `a path below /dev or a pattern such as "/dev/ttyUSB*", or a list of them`,
	check: func(a alternative) (rule, hint string) {
		elements := shape(a.tokens)
		if strings.HasPrefix(elements, devDir) && path.Clean(elements) == elements {
			return "", ""
		}
		switch before, after, below := strings.Cut(a.written, devDir); {
		case slices.Contains(strings.Split(elements, "/"), ".."):
			return `has "..": want a path below /dev without it`, ""
		case strings.HasPrefix(elements, devDir) && strings.HasSuffix(elements, "/"):
			return "names a directory: want the nodes in it", didYouMean(strings.TrimRight(a.written, "/") + "/*")
		case strings.HasPrefix(elements, devDir):
			return "is not a clean path: want single slashes and no \".\"", ""
		case below && before != "":
			return "is not below /dev: want the host's own path", didYouMean(devDir + after)
		case strings.HasPrefix(elements, "/sys/"):
			return "is not below /dev: want the path of a device node", "hardware is selected by usb and pci"
		case strings.HasPrefix(elements, "/"):
			return "is not below /dev: want the path of a device node", ""
		default:
			return `is not below /dev: want a path such as "/dev/ttyUSB*"`, didYouMean(devDir + strings.TrimPrefix(a.written, "dev/"))
		}
	},
}

// pathGlob selects any paths: files and directories to mount.
var pathGlob = kind{
	mode: pathMode, want: "an absolute path or pattern",
	check: func(a alternative) (rule, hint string) {
		elements := shape(a.tokens)
		if !strings.HasPrefix(elements, "/") || path.Clean(elements) != elements {
			return `is not an absolute, clean path: want one such as "/opt/vendor/*.so"`, ""
		}
		return "", ""
	},
}

// ParseGlob reads one pattern of absolute paths, such as Companion.Glob. The
// error says what the pattern breaks.
func ParseGlob(pattern string) (Values, error) {
	patterns, not, rule, _ := pathGlob.parse(pattern)
	if not {
		rule = `begins with "!": want a pattern that selects`
	}
	if rule != "" {
		return Values{}, errors.New(quote(pattern) + " " + rule)
	}
	return Values{mode: pathMode, positive: patterns, written: []string{strings.TrimSpace(pattern)}}, nil
}
