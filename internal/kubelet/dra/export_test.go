package dra

import "time"

// SetAnswer replaces how long a call of the kubelet may wait.
func (p *Plugin) SetAnswer(d time.Duration) {
	p.timing.answer = d
	p.timing.hang = d
}

// SetStart replaces how long a pod may need from the answer to a prepare to its first process.
func (p *Plugin) SetStart(d time.Duration) { p.timing.start = d }
