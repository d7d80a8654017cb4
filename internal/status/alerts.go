package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/generic-dp/generic-dp/internal/order"
)

// Alert is a heading with the lines below it.
type Alert struct {
	Heading string `json:"heading"`
	// Lines are never empty.
	Lines []string `json:"lines"`
	// Help is the section of the documentation about it.
	Help Section `json:"help"`
}

// Alerts lists the problems that need an administrator at a time, most urgent first. Alerts without
// lines are left out, so the list is empty if there is no problem.
func (s *Status) Alerts(now time.Time) []Alert {
	alerts := []Alert{
		{
			Heading: "Configuration on disk is broken, the last good one is served",
			Lines:   s.Config.Problems,
			Help:    SectionConfiguration,
		},
		{
			Heading: "Not ready",
			Lines:   s.NotReady,
			Help:    SectionRegistration,
		},
		{
			Heading: "Gone in the last 24 h",
			Lines:   s.gone(now),
			Help:    SectionAbsent,
		},
		{
			Heading: "Problems on this host",
			Lines:   lines(s.Problems),
			Help:    SectionHost,
		},
		{
			Heading: "Event sources unavailable, full scan every minute",
			Lines:   lines(s.Degraded),
			Help:    SectionHost,
		},
	}
	return slices.DeleteFunc(alerts, func(a Alert) bool {
		return len(a.Lines) == 0
	})
}

// The words of the events about devices that leave a list.
const (
	// LeftList precedes the reason.
	LeftList = "left the list: "
	// ReasonGone is the reason for a device that the host does not have any more. Edits of the
	// configuration have other reasons.
	ReasonGone = "device is gone"
)

// goneFor is how long a device that has left the lists is shown.
const goneFor = 24 * time.Hour

// gone lists the devices that have disappeared from the host and left the lists, if they have not
// come back. It only knows the latest events.
func (s *Status) gone(now time.Time) []string {
	isListed := map[string]bool{}
	for _, r := range s.Resources {
		for _, d := range r.Devices {
			isListed[d.ID] = true
		}
	}
	var all []string
	for _, e := range slices.Backward(s.Events) {
		isGone := strings.HasPrefix(e.What, LeftList+ReasonGone)
		isOld := now.Sub(e.Time) > goneFor
		if !isGone || isOld || isListed[e.ID] {
			continue
		}
		// A device of several resources, or one that has gone twice, has one line.
		isListed[e.ID] = true
		all = append(all, fmt.Sprintf("%s %s, at %s UTC", e.Resource, e.ID, e.Time.UTC().Format(time.DateTime)))
	}
	return all
}

// lines are problems as text.
func lines(problems []Problem) []string {
	var all []string
	for _, p := range problems {
		all = append(all, p.Subject+": "+p.Reason)
	}
	return all
}

// ProblemsLast sorts resources and devices: first the resources without devices, then the retiring
// ones, then the ones that work, and last the ones that need an administrator. The order is stable. It
// changes s, whose lists must belong to the caller.
func (s *Status) ProblemsLast() {
	order.Stable(s.Resources, func(a, b Resource) int {
		return cmp.Compare(s.rank(&b), s.rank(&a))
	})
	for _, r := range s.Resources {
		order.Stable(r.Devices, func(a, b Device) int {
			return cmp.Compare(b.rank(), a.rank())
		})
	}
}

// rank is the place of a resource in the order of ProblemsLast, from the end.
func (s *Status) rank(r *Resource) int {
	isUnregistered := s.Kubelet != nil && !r.Registered
	switch {
	case len(r.Devices) == 0:
		return 4
	case r.Retired:
		return 3
	case r.Problems() > 0:
		return 0
	case isUnregistered:
		return 1
	}
	return 2
}

// rank is the place of a device in the order of ProblemsLast, from the end.
func (d *Device) rank() int {
	switch d.Health {
	case Unhealthy:
		return 0
	case Healthy:
		return 1
	}
	return 2
}
