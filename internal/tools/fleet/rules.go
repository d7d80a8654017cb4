package fleet

import (
	"fmt"
	"slices"
)

// Reason is one explanation, and what to do.
type Reason struct {
	// Rule names the rule that gave it. The names are an API.
	Rule string `json:"rule"`
	// Text is one sentence, Details are the facts behind it, and Do says what to do. Both lists may
	// be empty, but are not nil after Explain.
	Text    string   `json:"text"`
	Details []string `json:"details"`
	Do      []string `json:"do"`
}

// rule explains one kind of problem. It returns nil if the pod does not have it.
type rule struct {
	name    string
	explain func(*Evidence) *Reason
}

// lastRules describe what others have found out, such as the message of the scheduler. They only
// help if no rule knows the cause.
var lastRules = []rule{
	{"scheduler", schedulerSays},
	{"container", containerWaits},
}

// rules are in the order in which a pod meets the obstacles: it is created, scheduled, admitted,
// started, and keeps its device or loses it.
var rules = []rule{
	// rule_create.go
	{"not-created", notCreated},
	// rule_claim.go
	{"class-missing", classMissing},
	{"claim-missing", claimMissing},
	{"claim-unused", claimUnused},
	// rule_schedule.go
	{"not-configured", notConfigured},
	{"no-device", noDeviceAnywhere},
	{"unhealthy", allUnhealthy},
	{"held", allHeld},
	{"rollout", rolloutStuck},
	{"too-many", tooMany},
	{"not-registered", notRegistered},
	// rule_node.go
	{"device-taint", deviceTainted},
	// rule_admit.go
	{"admission", admissionRefused},
	// rule_start.go
	{"prepare", prepareFailed},
	{"device-missing", createFailed},
	// rule_run.go
	{"lost", deviceLost},
	{"without-device", withoutDevice},
	{"permission", permissionDenied},
}

// Explain applies the rules to the evidence. The result is empty, not nil, if no rule applies.
func (e *Evidence) Explain() []Reason {
	reasons := e.apply(rules)
	if len(reasons) == 0 {
		reasons = e.apply(lastRules)
	}
	return reasons
}

// apply returns the reasons that some rules find.
func (e *Evidence) apply(rules []rule) []Reason {
	reasons := []Reason{}
	for _, r := range rules {
		found := r.explain(e)
		if found == nil {
			continue
		}
		found.Rule = r.name
		// Lists are never null in JSON.
		if found.Details == nil {
			found.Details = []string{}
		}
		if found.Do == nil {
			found.Do = []string{}
		}
		reasons = append(reasons, *found)
	}
	return reasons
}

// maxDetails limits the lines of a reason: 500 nodes may have the same one.
const maxDetails = 8

// few returns the first lines, and how many more there are. It does not change lines.
func few(lines []string) []string {
	if len(lines) <= maxDetails {
		return lines
	}
	more := fmt.Sprintf("and %d more", len(lines)-maxDetails)
	return append(lines[:maxDetails:maxDetails], more)
}

// because returns a reason with the first of its details, or nil if there are none.
func because(text string, details []string, do string) *Reason {
	if len(details) == 0 {
		return nil
	}
	return &Reason{
		Text:    text,
		Details: few(details),
		Do:      []string{do},
	}
}

// latest returns the latest event that a rule is about, or nil.
func (e *Evidence) latest(isAbout func(*Event) bool) *Event {
	var latest *Event
	for i := range e.Events {
		event := &e.Events[i]
		if isAbout(event) && (latest == nil || event.at().After(latest.at())) {
			latest = event
		}
	}
	return latest
}

// RuleNames are the names of all rules, in their order.
func RuleNames() []string {
	var names []string
	for _, r := range slices.Concat(rules, lastRules) {
		names = append(names, r.name)
	}
	return names
}
