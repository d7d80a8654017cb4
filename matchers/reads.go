package matchers

import (
	"fmt"
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

const (
	tooLate       = "comparing its patterns takes too long: its devices are not known, and listed ones stay listed"
	tooMuchToRead = "reading it takes too long: a search may take half a second, and all resources together some seconds"
)

// unknown is a key of a configuration whose values could not be read in time. No condition about them holds in
// match, and each does in exclude.
type unknown struct {
	place string
	key   string
}

// unknownIf records a key as unknown if a condition is met, and returns the condition.
func (m *run) unknownIf(isUnknown bool, place, key string) bool {
	if isUnknown && !slices.Contains(m.unknown, unknown{place, key}) {
		m.unknown = append(m.unknown, unknown{place, key})
	}
	return isUnknown
}

// reportUnknown reports a resource whose devices are not all known, because time was too short. The ledger keeps
// the listed ones.
func (m *run) reportUnknown(r *config.Resource) {
	switch {
	case len(m.unknown) > 0:
		const hint = `spell out more of the name, as in "power/control" for "*/control"`
		first := m.unknown[0]
		m.result.Unknown[r] = andMore(first.key, len(m.unknown)) + ": " + tooMuchToRead
		m.fault(first.place, hint, "%s", m.result.Unknown[r])
	case m.deadline.isOver:
		const hint = "fewer wildcards and alternatives, or a list of patterns that are spelled out"
		m.result.Unknown[r] = tooLate
		m.fault(r.Place, hint, "%s", tooLate)
	}
	m.result.Late = m.result.Late || m.deadline.isOver
}

// search lists the host paths that a glob matches. If complete is not set, some may be missing.
func (m *run) search(place, key string, v pattern.Values) (found []string, complete bool) {
	if !m.deadline.isPast() {
		found, complete = m.Host.Glob(v, m.deadline.end())
	}
	return found, !m.unknownIf(!complete, place, key)
}

// exists reports whether a path of the host exists. Place says what asks for it. A path that is
// not known counts as missing.
func (m *run) exists(place, path string) (exists bool) {
	// The snapshot has the nodes and directories below /dev, so that their paths need no read.
	if m.at(path) != nil || m.isDir(path) {
		return true
	}
	known := false
	if !m.deadline.isPast() {
		exists, known = m.Host.Exists(path)
	}
	m.unknownIf(!known, place, fmt.Sprintf("path %q", path))
	return exists
}

// attr lists the values of an attribute of the first sysfs directory that has it. Messages name
// the place and the key of the condition in the configuration.
func (m *run) attr(place, key string, dirs []string, name string) (values []string, unread bool) {
	for _, dir := range dirs {
		if m.unknownIf(m.deadline.isPast(), place, key) {
			return nil, true
		}
		// An attribute that cannot be read yet still hides the attributes of directories above.
		values, unread = m.Host.Attr(dir, name, m.deadline.end())
		if unread {
			m.unknownIf(m.deadline.isPast(), place, key) // its search was cut off
		}
		if values != nil || unread {
			break
		}
	}
	return values, unread
}
