package dra

import "time"

// SetAnswer replaces how long a call of the kubelet may wait.
func (p *Plugin) SetAnswer(d time.Duration) {
	p.timing.answer = d
	p.timing.hang = d
}

// SetStart replaces how long a pod may need from the answer to a prepare to its first process.
func (p *Plugin) SetStart(d time.Duration) { p.timing.start = d }

// Hasten shortens the delays of requests to the API server.
func (p *Plugin) Hasten(refill time.Duration) {
	p.timing.jitter = time.Millisecond
	p.timing.calm = time.Millisecond
	p.timing.retry = 5 * time.Millisecond
	p.timing.maxRetry = 20 * time.Millisecond
	p.timing.refill = refill
}
