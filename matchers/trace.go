package matchers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/device"
)

// target is a node with its hardware, or hardware as a whole. As the subject of an
// explanation, the zero target is the whole host.
type target struct {
	// hardware is nil for a node without hardware.
	hardware *device.Hardware
	// node is nil for hardware as a whole.
	node *device.Node
}

// String names the target in explanations. The zero target has no name.
func (t target) String() string {
	if t.node != nil {
		return t.node.Path
	}
	return t.hardware.Name
}

// isWithin reports whether an explanation about a subject includes the target.
func (t target) isWithin(subject target) bool {
	if subject.node != nil && t.node != subject.node {
		return false
	}
	// A subject without a node and hardware includes every target.
	return subject.hardware == nil || t.hardware == subject.hardware
}

// recorder makes Match record why each resource has its devices, for Explain. The methods of a nil
// recorder do nothing.
type recorder struct {
	// subject is the explained hardware or node.
	subject target
	// traces has no entry for inactive resources.
	traces map[*config.Resource]*trace
	// current is the trace of the resource that is being matched.
	current *trace
	// budget is for reads that only the explanation needs, so that these reads do not change the
	// result of Match.
	budget budget
}

// newRecorder returns a recorder without records. Its own budget is as large as the budget of the
// run.
func newRecorder(cfg *config.Config, subject target) *recorder {
	return &recorder{
		subject: subject,
		traces:  make(map[*config.Resource]*trace),
		budget:  newBudget(cfg),
	}
}

// begin starts the trace of a resource.
func (r *recorder) begin(resource *config.Resource) {
	if r == nil {
		return
	}
	r.current = &trace{excluded: make(map[string]bool)}
	r.traces[resource] = r.current
	r.budget.begin()
}

// trace records what happened to the devices of a resource, as far as the subject is concerned.
// The strings are texts for an administrator.
type trace struct {
	matches []*matchTrace
	// found is the number of devices that the matches select and no exclude drops.
	found int
	// excluded are the names of devices that an exclude drops.
	excluded map[string]bool
	// dropped are the devices that were dropped for the first reason. droppedCount is the number of
	// devices that were dropped for any reason.
	dropped      droppedDevices
	droppedCount int
	// owners are the resources that have devices which this resource also selects.
	owners []ownedDevices
	// offered are the IDs of its devices. It is empty if the subject is in none of them.
	offered []string
	// variables are only recorded if the subject is a single device or node.
	variables []Variable
}

// droppedDevices are the devices that a resource drops for one reason.
type droppedDevices struct {
	why   string
	first string
	count int
}

// ownedDevices are the devices of another resource.
type ownedDevices struct {
	owner *config.Resource
	first string
	count int
}

// concerns reports whether a candidate has the explained hardware or node.
func (r *recorder) concerns(c *candidate) bool {
	h := r.subject.hardware
	n := r.subject.node
	if n != nil {
		isPicked := slices.ContainsFunc(c.picks, func(p pick) bool {
			return p.node == n
		})
		// A device without picks stands for its hardware as a whole.
		isWhole := len(c.picks) == 0 && n.Hardware != nil
		return isPicked || isWhole && slices.Contains(c.members(), n.Hardware)
	}
	if h != nil {
		// The owner of a node may be another function of the IOMMU group than the hardware of the
		// device.
		hasNode := slices.ContainsFunc(c.picks, func(p pick) bool {
			return p.node.Hardware == h
		})
		return hasNode || slices.Contains(c.members(), h)
	}
	return true
}

// find records the devices that the matches select.
func (r *recorder) find(found []candidate) {
	if r == nil {
		return
	}
	for i := range found {
		if r.concerns(&found[i]) {
			r.current.found++
		}
	}
}

// exclude records a device that an exclude drops.
func (r *recorder) exclude(c *candidate) {
	if r == nil || !r.concerns(c) {
		return
	}
	r.current.excluded[c.describe()] = true
}

// drop records a device that a rule drops.
func (r *recorder) drop(c *candidate, format string, args ...any) {
	if r == nil || !r.concerns(c) {
		return
	}
	t := r.current
	t.droppedCount++
	why := fmt.Sprintf(format, args...)
	// Only the first reason is kept, since an explanation is a few lines long.
	if t.dropped.count == 0 {
		t.dropped.first = c.describe()
		t.dropped.why = why
	}
	if t.dropped.why == why {
		t.dropped.count++
	}
}

// deny records a device that another resource has.
func (r *recorder) deny(c *candidate, owner *config.Resource) {
	if r == nil || !r.concerns(c) {
		return
	}
	t := r.current
	// The owners stay in the order in which they are found. There are only a few.
	i := slices.IndexFunc(t.owners, func(o ownedDevices) bool {
		return o.owner == owner
	})
	if i < 0 {
		i = len(t.owners)
		t.owners = append(t.owners, ownedDevices{
			owner: owner,
			first: c.describe(),
		})
	}
	t.owners[i].count++
}

// offer records an offer, with its variables if a single device is explained.
func (r *recorder) offer(b *builder) {
	if r == nil || !r.concerns(b.c) {
		return
	}
	t := r.current
	t.offered = append(t.offered, b.id)
	// The variables of every device of the host would be too many to read.
	if r.subject == (target{}) {
		return
	}
	// The first three are of interest even if the resource does not use them.
	names := append([]string{"id", "resource", "container_path"}, b.r.Variables...)
	t.variables = append(t.variables, b.table(names)...)
}

// match starts the trace of a match of the current resource. It returns nil for a nil recorder,
// which turns off all records of the match.
func (r *recorder) match(p *predicate) *matchTrace {
	if r == nil {
		return nil
	}
	t := &matchTrace{
		recorder:   r,
		predicate:  p,
		conditions: make([]map[any]judgement, len(p.conditions)),
		glob:       make(map[*device.Node]judgement),
		vfio:       make(map[*device.Hardware]judgement),
		ofTables:   make(map[*device.Hardware]bool),
		ignored:    make(map[*device.Hardware]bool),
		parts:      make(map[*device.Hardware][]*device.Node),
	}
	for i := range t.conditions {
		t.conditions[i] = make(map[any]judgement)
	}
	r.current.matches = append(r.current.matches, t)
	return t
}

// matchTrace records the judgements of a predicate. With a trace, selection judges every node and all
// hardware by every condition, so that each condition has its own reason. The methods of a nil trace do
// nothing.
type matchTrace struct {
	recorder  *recorder
	predicate *predicate
	// targets are the nodes or the hardware from which the match selects, in the order of their
	// judgement. selected are the selected targets.
	targets  []target
	selected []target
	// selectedOthers are the selected paths, CDI devices and virtual devices.
	selectedOthers []string
	// conditions are the judgements of each condition of the predicate, by the judged hardware or
	// node. glob and vfio are the judgements of these keys.
	conditions []map[any]judgement
	glob       map[*device.Node]judgement
	vfio       map[*device.Hardware]judgement
	// ofTables has the hardware whose kinds the tables describe. ignored has the sub-functions that
	// a match without pci.sriov ignores.
	ofTables map[*device.Hardware]bool
	ignored  map[*device.Hardware]bool
	// parts are the nodes that were judged as parts of hardware.
	parts map[*device.Hardware][]*device.Node
	// isOut is set if a condition does not hold for the current target. Match would not read
	// more about it.
	isOut bool
}

// judgement is the result of one condition for one node or hardware.
type judgement struct {
	holds bool
	// unread is set if some values are not known yet.
	unread bool
	values []string
}

// beginHardware starts the judgement of hardware that is not a target itself.
func (t *matchTrace) beginHardware() {
	if t != nil {
		t.isOut = false
	}
}

// beginTarget starts the judgement of a target. matches is false if the hardware of the
// target does not match.
func (t *matchTrace) beginTarget(h *device.Hardware, n *device.Node, matches bool) {
	if t == nil {
		return
	}
	t.isOut = !matches
	isRootHub := n == nil && h.IsRootHub()
	next := target{h, n}
	// No match selects a root hub, so that it would be a confusing nearest target.
	if !isRootHub && next.isWithin(t.recorder.subject) {
		t.targets = append(t.targets, next)
	}
}

// beginPart starts the judgement of a node as a part of hardware that was judged before.
func (t *matchTrace) beginPart(h *device.Hardware, n *device.Node, matches bool) {
	if t == nil {
		return
	}
	// A part of hardware that does not match cannot be selected, whatever its own conditions say.
	t.isOut = !matches
	t.parts[h] = append(t.parts[h], n)
}

// selects records that the match selects a target.
func (t *matchTrace) selects(h *device.Hardware, n *device.Node) {
	if t == nil {
		return
	}
	next := target{h, n}
	if !next.isWithin(t.recorder.subject) {
		return
	}
	// Each node of hardware as a whole selects the hardware again.
	last := len(t.selected) - 1
	isRepeated := last >= 0 && t.selected[last] == next
	if !isRepeated {
		t.selected = append(t.selected, next)
	}
}

// selectsOther records that the match selects a path, a CDI device or a virtual device. They have
// no hardware, so that they are only recorded if the whole host is explained.
func (t *matchTrace) selectsOther(name string) {
	if t == nil || t.recorder.subject != (target{}) {
		return
	}
	t.selectedOthers = append(t.selectedOthers, name)
}

// judgeVFIO records whether hardware can be used through VFIO.
func (t *matchTrace) judgeVFIO(h *device.Hardware, holds bool) {
	if t == nil {
		return
	}
	v := judgement{holds: holds}
	if h.PCI != nil {
		// The driver is what an administrator has to change.
		v.values = []string{"driver " + h.PCI.Driver}
	}
	t.vfio[h] = v
}

// judge reports whether a condition of the predicate holds, and records it.
func (t *matchTrace) judge(p *predicate, i int, h *device.Hardware, n *device.Node) bool {
	c := &p.conditions[i]
	values, unread := t.read(p.run, c, h, n)
	unread = unread || p.run.isLate(c.want)
	v := judgement{
		holds:  c.accepts(values, unread, p.exclude),
		unread: unread,
		values: values,
	}
	// The key is the node if there is one, as in subjects.
	if n != nil {
		t.conditions[i][n] = v
	} else {
		t.conditions[i][h] = v
	}
	if !v.holds {
		t.isOut = true
	}
	return v.holds
}

// read reads the values for a condition. It does not use the budget of the resource for a
// value that Match would not read.
func (t *matchTrace) read(
	m *run,
	c *condition,
	h *device.Hardware,
	n *device.Node,
) (values []string, unread bool) {
	// Match reads this value as well, so that the read costs its budget in both cases.
	if !t.isOut {
		return c.have(h, n)
	}
	m.budget, t.recorder.budget = t.recorder.budget, m.budget
	values, unread = c.have(h, n)
	m.budget, t.recorder.budget = t.recorder.budget, m.budget
	return values, unread
}

// step is a condition of a match as the explanation shows it, with its records.
type step struct {
	Condition
	of   *matchTrace
	kind stepKind
	// index is the index of the condition in the predicate, for a conditionStep.
	index int
}

// stepKind is the part of a match that a step shows.
type stepKind byte

const (
	globStep stepKind = iota
	tableStep
	conditionStep
	vfioStep
)

// steps lists the conditions of the match. An empty table is a condition, too. They are in the
// order in which the explanation narrows the targets.
func (t *matchTrace) steps() []*step {
	p := t.predicate
	var all []*step
	add := func(kind stepKind, key, want string, index int) {
		all = append(all, &step{
			Condition: Condition{Key: key, Want: want},
			of:        t,
			kind:      kind,
			index:     index,
		})
	}
	if !p.Glob.Empty() {
		add(globStep, "glob", quotedPatterns(p.Glob), 0)
	}
	for _, name := range []string{"usb", "pci", "mdev", "net"} {
		table := p.Hardware[name]
		// A table with keys is shown by its keys.
		if table != nil && len(table) == 0 {
			add(tableStep, name, "", 0)
		}
	}
	for i, c := range p.conditions {
		add(conditionStep, c.key, quotedPatterns(c.want), i)
	}
	if p.VFIO {
		add(vfioStep, "vfio", "", 0)
	}
	return all
}

// judgements lists the recorded judgements of a target for the step. It is empty if the step was not
// judged for the target, because the target has no hardware or hardware of another kind.
func (s *step) judgements(t target) []judgement {
	if s.kind == globStep {
		v, isJudged := s.of.glob[t.node]
		if !isJudged {
			return nil
		}
		return []judgement{v}
	}
	// The target was never compared with the condition.
	if !s.of.isOfTables(t) {
		return nil
	}
	switch s.kind {
	// Being of the kind of the table is all that an empty table requires.
	case tableStep:
		return []judgement{{holds: true}}
	case vfioStep:
		return []judgement{s.of.vfio[t.hardware]}
	}
	var found []judgement
	for _, subject := range s.subjects(t) {
		v, isJudged := s.of.conditions[s.index][subject]
		if isJudged {
			found = append(found, v)
		}
	}
	return found
}

// isOfTables reports whether a target has the kinds that the tables of the match describe.
func (t *matchTrace) isOfTables(of target) bool {
	p := t.predicate
	if !p.NamesHardware() {
		return true
	}
	if !p.net {
		return t.ofTables[of.hardware]
	}
	// With net, a target is an interface, or hardware or a node beside an interface.
	isNet := of.node != nil && of.node.Net != nil
	if isNet {
		return !p.namesDevices() || t.ofTables[of.hardware]
	}
	return t.ofTables[of.hardware] && len(of.hardware.Nets) > 0
}

// subjects lists pointers to the hardware or the nodes that the condition of the step is about, for a
// target.
func (s *step) subjects(t target) []any {
	var all []any
	switch s.of.predicate.conditions[s.index].about {
	case wholeHardware:
		return []any{t.hardware}
	case netInterface:
		// The target is the interface itself. Otherwise any interface of the hardware may match.
		if t.node != nil && t.node.Net != nil {
			return []any{t.node}
		}
		for _, n := range t.hardware.Nets {
			all = append(all, n)
		}
		return all
	}
	if t.node != nil {
		return []any{t.node}
	}
	all = append(all, t.hardware)
	// The hardware fits if the hardware itself or any of its nodes does.
	for _, n := range s.of.parts[t.hardware] {
		all = append(all, n)
	}
	return all
}

// holds reports whether the condition of the step was judged to hold for a target.
func (s *step) holds(t target) bool {
	return slices.ContainsFunc(s.judgements(t), func(v judgement) bool {
		return v.holds
	})
}

// readsFiles reports whether the condition of the step reads files of sysfs. The nearest value of
// such a condition is only reported after other conditions have narrowed the targets.
func (s *step) readsFiles() bool {
	return s.kind == conditionStep && s.of.predicate.conditions[s.index].about == sysfsDir
}

// isOnBus reports whether a target is a bus node of a USB device. Most matches leave bus nodes out on
// purpose.
func (t target) isOnBus() bool {
	return t.node != nil && strings.HasPrefix(t.node.Path, "/dev/bus/")
}
