package health

import "time"

// The checks of one interval have their turns at few moments of it: a hundred
// devices are not checked all at once, and not each by itself either, since
// every moment wakes the machine.
const (
	// slots is how many such moments an interval has at the most.
	slots = 8
	// crowd is how many checks share a moment before there is another one.
	crowd = 12
	// firstRetry is when a check that failed is repeated, twice as long after
	// each further failure, until that is no sooner than its turn.
	firstRetry   = time.Second
	maxDoublings = 20
)

// slot finds a place for one more check of an interval.
func (p *Prober) slot(interval time.Duration) int {
	var used [slots]int
	for _, pr := range p.probes {
		if pr.check.Interval == interval {
			used[pr.slot]++
		}
	}
	best := 0
	for i, n := range used {
		if n < crowd {
			return i
		}
		if n < used[best] {
			best = i
		}
	}
	return best
}

// schedule says when a check is repeated that began then and has ended now.
func (p *Prober) schedule(pr *probe, began time.Time) {
	now, interval := time.Now(), pr.check.Interval
	// A first check is out of turn: the next is not right behind it.
	after := began.Add(interval / 2)
	if after.Before(now) {
		after = now
	}
	pr.due = p.origin.Add(turn(after.Sub(p.origin), interval, pr.slot))
	if pr.reason == "" {
		pr.failures = 0
		return
	}
	if wait := firstRetry << min(pr.failures, maxDoublings); wait < interval/2 {
		pr.due = p.origin.Add(roundUp(now.Add(wait).Sub(p.origin)))
	}
	pr.failures++
}

// turn is the first turn of a slot behind a moment, counted from the origin.
// Turns are at whole seconds wherever intervals are, so that different
// intervals share them.
func turn(after, interval time.Duration, slot int) time.Duration {
	phase := (interval * time.Duration(slot) / slots).Truncate(time.Second)
	if after < phase {
		return phase
	}
	return phase + ((after-phase)/interval+1)*interval
}

func roundUp(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}
