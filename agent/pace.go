package agent

import "time"

const (
	// One device that is plugged in makes a handful of events within some
	// milliseconds, each of which is looked at at once, while what the looks
	// took is below burst. A storm of events gets a share of a core: a look
	// that took 1 ms is paid off in paceFactor ms, and until then the next one
	// is put off, so that it takes in all that happened meanwhile. maxPause is
	// for a look that the kernel kept waiting.
	burst      = 250 * time.Millisecond
	paceFactor = 4
	maxPause   = 100 * time.Millisecond

	// lull is what the look waits for that comes after one with news for the
	// kubelet. The kernel goes on telling of a device whose node was seen already,
	// and on a machine with one CPU a look at that would keep those waiting who
	// take the news there, in this process and in the kubelet's.
	lull = 2 * time.Millisecond
)

// pace says when to look at the host, so that a single event is looked at at
// once and a storm of them never costs more than a quarter of a core.
type pace struct {
	owed time.Duration // what looks took that is not paid off
	at   time.Time     // of the last look's end
	news time.Time     // when there was something new for the kubelet last
}

// spent takes down that a look, which ends now, took this long.
func (p *pace) spent(now time.Time, took time.Duration) {
	p.owed = max(0, p.owed-now.Add(-took).Sub(p.at)/(paceFactor-1)) + took
	p.at = now
}

// pause is how long the next look is to be put off.
func (p *pace) pause(now time.Time) time.Duration {
	due := p.at.Add((p.owed - burst) * (paceFactor - 1))
	return min(max(0, due.Sub(now), p.news.Add(lull).Sub(now)), maxPause)
}
