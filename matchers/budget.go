package matchers

import (
	"slices"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/pattern"
)

const (
	// maxEntries is how many directory entries one run of Match may read. To read a million of them takes
	// 1.5 s.
	maxEntries = 200_000
	// existsCost is the cost of the search for one path. It is the cost of a look-up in a glob,
	// see lookUpCost in package pattern.
	existsCost = 8
)

const tooMuchToRead = "reading it takes too long: a configuration may read 200,000 directory entries in all, and a search may take half a second"

// NoAnswer in place of the entries that are left says that a Host has no answer for another reason.
const NoAnswer = -1

// budget is the quota of directory entries. A search that uses it up has no answer. Later searches of the
// resource have none either: none of its conditions in match holds, and each in exclude does.
type budget struct {
	quota
	// unknown are the keys of the current resource that could not be read.
	unknown []unknown
	// attrs are the attributes that were read.
	attrs map[attrKey]attrFound
}

// unknown is a key of a configuration whose values could not be read.
type unknown struct {
	place string
	key   string
}

// newBudget returns the budget of a run. A resource has one share, and its when another one.
func newBudget(cfg *config.Config) budget {
	return budget{
		quota: newQuota(maxEntries, 2*len(cfg.Resources)),
		attrs: make(map[attrKey]attrFound),
	}
}

// begin begins with the searches of a resource, or of its when.
func (b *budget) begin() {
	b.quota.begin()
	b.unknown = nil
}

// spend calls search with what is left for the current resource, and reports whether its answer
// is complete. If not, key is unknown.
func (b *budget) spend(place, key string, search func(entries *int)) bool {
	before := b.left()
	left := before
	// Without entries, the search is not even begun.
	if left > 0 {
		search(&left)
	}
	// A search costs nothing if it has no answer, because nobody knows what it has read.
	if left != NoAnswer {
		b.take(before - left)
	}
	// A search that ends exactly at the limit also counts as cut off.
	if left > 0 {
		return true
	}
	if !slices.Contains(b.unknown, unknown{place, key}) {
		b.unknown = append(b.unknown, unknown{place, key})
	}
	return false
}

// reportUnknown reports the keys of a resource that could not be read.
func (m *run) reportUnknown(r *config.Resource) {
	if len(m.budget.unknown) == 0 {
		return
	}
	first := m.budget.unknown[0]
	m.result.Unknown[r] = andMore(first.key, len(m.budget.unknown)) + ": " + tooMuchToRead
	const hint = `spell out more of the name, as in "power/control" for "*/control"`
	m.fault(first.place, hint, "%s", m.result.Unknown[r])
}

// search lists the host paths that a glob matches. If complete is not set, some may be missing.
func (m *run) search(place, key string, v pattern.Values) (found []string, complete bool) {
	complete = m.budget.spend(place, key, func(entries *int) {
		found = m.Host.Glob(v, entries)
	})
	return found, complete
}

// attrKey is an attribute of a directory of sysfs.
type attrKey struct {
	dir  string
	name string
}

// attrFound are the values of an attribute, as far as they are known.
type attrFound struct {
	values []string
	unread bool
}

// attr lists the values of an attribute of the first sysfs directory that has it. place and key
// are those of the configuration, for messages.
func (m *run) attr(place, key string, dirs []string, name string) (values []string, unread bool) {
	for _, dir := range dirs {
		// Several resources, and several conditions of a resource, may read the same attribute.
		k := attrKey{dir, name}
		found, known := m.budget.attrs[k]
		if !known {
			complete := m.budget.spend(place, key, func(entries *int) {
				found.values, found.unread = m.Host.Attr(dir, name, entries)
			})
			// The answer is not kept, because another resource may have entries left.
			if !complete {
				return nil, true
			}
			m.budget.attrs[k] = found
		}
		// An attribute that cannot be read yet still hides the attributes of directories above.
		if found.values != nil || found.unread {
			return found.values, found.unread
		}
	}
	return nil, false
}
