package agent

import "errors"

// reportLists reports that attributes with lists are not published. The devices are published without
// them: the scheduler then knows less, but nothing that is wrong. The plugin must have started.
func (l *loop) reportLists() {
	if problem := l.dra.plugin.Load().ListProblem(); problem != "" {
		l.page.problems.warn("list_attributes", errors.New(problem), "attributes are left out")
	}
}
