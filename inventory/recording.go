package inventory

import (
	"strconv"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// RecordingMarker is the name of the file at the root of a recorded /dev.
//
// A recorded machine can be read by any user, also where mknod(2) is refused:
// below a directory with this file a regular file whose content is
// "char 188:0" or "block 8:0" (one line) stands for the node. Without the
// file, as on every real host, a regular file below /dev is never a node.
const RecordingMarker = ".generic-dp-recording"

// parseRecordedNode reads the content of a file that stands for a node.
func parseRecordedNode(s string) (kind device.NodeType, major, minor uint32, ok bool) {
	word, number, _ := strings.Cut(strings.TrimSuffix(s, "\n"), " ")
	switch word {
	case "char":
		kind = device.CharNode
	case "block":
		kind = device.BlockNode
	default:
		return 0, 0, 0, false
	}
	a, b, _ := strings.Cut(number, ":")
	x, err := strconv.ParseUint(a, 10, 32)
	if err != nil {
		return 0, 0, 0, false
	}
	y, err := strconv.ParseUint(b, 10, 32)
	if err != nil {
		return 0, 0, 0, false
	}
	return kind, uint32(x), uint32(y), true
}
