package matchers

// quota limits what a run of Match takes of something: directory entries, or time. One half is for all
// resources together. The other half is divided equally among them, so that a resource which takes without
// end leaves the others their share.
type quota struct {
	// shared is left for all resources.
	shared int
	// share is the share of each resource.
	share int
	// own is left of the share of the current resource.
	own int
}

// newQuota returns the quota of a run with a number of shares.
func newQuota(all, shares int) quota {
	return quota{shared: all / 2, share: all / 2 / max(1, shares)}
}

// begin begins with a resource. What an earlier resource has left of its share is lost.
func (q *quota) begin() { q.own = q.share }

// left returns what the current resource may take.
func (q *quota) left() int { return q.own + q.shared }

// take takes an amount, of the own share first.
func (q *quota) take(amount int) {
	ofShare := min(amount, q.own)
	q.own -= ofShare
	q.shared = max(0, q.shared-(amount-ofShare))
}
