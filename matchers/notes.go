package matchers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/device"
)

// notes says what an administrator should know of what a resource offers.
func (ix *index) notes(r *config.Resource, devices []selected, offers []device.Offer) []Note {
	var notes []Note
	say := func(place, hint, format string, args ...any) {
		notes = append(notes, Note{Place: place, Text: fmt.Sprintf(format, args...), Hint: hint})
	}
	for i := range r.Match {
		m := &r.Match[i]
		if len(m.Virtual) > 0 && r.When == nil {
			say(m.Place, `when.node_name = "worker-*", or when.exists, says where`,
				"virtual without when: every node that runs this configuration offers it")
		}
		if m.Mount {
			if nodes := ix.glob(m.Glob); len(nodes) > 0 {
				say(m.Place, `a match without as = "mount" gives device nodes`,
					"device nodes are not mounted: %s", andMore(nodes[0].Path, len(nodes)))
			}
		}
	}
	for _, list := range sameGroup(r, devices) {
		say(r.Place, "vfio = true makes one device of them",
			"%s and %s can't be used by two containers at once, since one of them has the whole group", list[0].describe(), andMore(list[1].describe(), len(list)-1))
	}
	if r.Container.CDI {
		if i := slices.IndexFunc(offers, func(o device.Offer) bool { return len(o.Nets) > 0 && o.Problem == "" }); i >= 0 {
			say(r.Place, "", "network interface %s moves into its container: the host is without it until the pod ends, and a container that restarts within the pod finds it as long as this program runs",
				offers[i].Nets[0].HostName)
		}
		return notes
	}
	for _, text := range namedNodes(offers, devices) {
		say(r.Place, "container.cdi = true", "%s without container.cdi: programs find these nodes by their names, and a container that restarts when the numbers in them have changed finds them at the names of before", text)
	}
	if united(r) && slices.ContainsFunc(offers, func(o device.Offer) bool {
		return slices.ContainsFunc(o.Nodes, func(n device.OfferedNode) bool { return n.Follow && !n.Companion })
	}) {
		what := `each = "all"`
		if r.GroupBy != "" {
			what = "group_by"
		}
		say(r.Place, "container.cdi = true", "%s without container.cdi: a container keeps to the nodes that were there when its pod started, also when it restarts", what)
	}
	return notes
}

// leftNotes say what no container gets although a resource selects it.
func leftNotes(r *config.Resource, devices []selected, offers []device.Offer) []Note {
	var notes []Note
	first, bad := -1, 0
	for i := range offers {
		if offers[i].Problem == "" {
			continue
		}
		if bad++; first < 0 {
			first = i
		}
	}
	if bad > 0 {
		notes = append(notes, Note{
			Place: r.Place,
			Text:  fmt.Sprintf("%s can't be handed over: %s", andMore(fmt.Sprintf("device %q", offers[first].ID), bad), offers[first].Problem),
			Hint:  "devices lists them all",
		})
	}
	if c := &r.Container; c.CDI || len(c.Env)+len(c.Annotations) > 0 {
		return notes
	}
	for i := range devices {
		if s := &devices[i]; len(s.picks) > 0 && s.picks[0].node.Net != nil && s.picks[0].match.Net != nil {
			return append(notes, Note{
				Place: r.Place,
				Text:  fmt.Sprintf("network interface %s without container.cdi: it stays on the host, and a container gets nothing of it", s.picks[0].node.Path),
				Hint:  "container.cdi = true moves it into the container",
			})
		}
	}
	return notes
}

// united reports whether devices of a resource are several things whose
// members come and go.
func united(r *config.Resource) bool { return r.Each == config.EachAll || r.GroupBy != "" }

// interfaceDirs are directories of nodes whose names programs expect to find,
// and what the nodes are. A path that an administrator chose is none of them.
var interfaceDirs = []struct{ dir, nodes string }{
	{"/dev/bus/usb/", "USB bus nodes"},
	{"/dev/vfio/", "VFIO nodes"},
	{"/dev/dri/", "DRM nodes"},
	{"/dev/infiniband/", "RDMA nodes"},
	{"/dev/snd/", "sound nodes"},
}

// namedNodes lists, for each kind, nodes that follow their hardware and are
// handed over at a path that is part of their interface. What vfio = true
// selects has a note of its own.
func namedNodes(offers []device.Offer, devices []selected) []string {
	vfio := slices.ContainsFunc(devices, func(s selected) bool { return len(s.groups) > 0 })
	var out []string
	for _, kind := range interfaceDirs {
		if vfio && kind.dir == "/dev/vfio/" {
			continue
		}
		first, n := "", 0
		for _, o := range offers {
			for _, node := range o.Nodes {
				if !node.Follow || node.Companion || !strings.HasPrefix(node.HostPath, kind.dir) || node.Path.String() != node.HostPath {
					continue
				}
				if n == 0 {
					first = node.HostPath
				}
				n++
			}
		}
		if n > 0 {
			out = append(out, fmt.Sprintf("%s (%s)", kind.nodes, andMore(first, n)))
		}
	}
	return out
}

// sameGroup lists devices of a resource that reach one IOMMU group through
// nodes of VFIO, by group, if there are several.
func sameGroup(r *config.Resource, devices []selected) [][]*selected {
	if r.Shared || united(r) {
		return nil
	}
	byGroup := map[string][]*selected{}
	var order []string
	for i := range devices {
		s := &devices[i]
		g := s.vfioGroup()
		if g == "" || !slices.ContainsFunc(s.picks, func(p pick) bool { return isGroupNode(p.node) || isFunctionNode(p.node) }) {
			continue
		}
		if byGroup[g] == nil {
			order = append(order, g)
		}
		byGroup[g] = append(byGroup[g], s)
	}
	var out [][]*selected
	for _, g := range order {
		if len(byGroup[g]) > 1 {
			out = append(out, byGroup[g])
		}
	}
	return out
}

// halves says which resource first offers a PCI function (whole), and which a
// mediated device of it (parts). Drivers differ in whether that can be, so both
// are offered.
type halves map[half]*config.Resource

type half struct {
	function *device.Hardware
	parts    bool
}

// notes tells where one resource has a function, and another has parts of it.
func (hs halves) notes(r *config.Resource, devices []selected) []Note {
	var found []string
	other := (*config.Resource)(nil)
	for _, s := range devices {
		for _, h := range s.members() {
			mine := half{function: h}
			if h.MDev != nil {
				mine = half{function: h.Parent, parts: true}
			} else if h.PCI == nil {
				continue
			}
			if hs[mine] == nil {
				hs[mine] = r
			}
			first := hs[half{mine.function, !mine.parts}]
			if first == nil || first == r || first.Shared && r.Shared {
				continue
			}
			if other == nil || other == first {
				other = first
				found = append(found, describe(h))
			}
		}
	}
	if other == nil {
		return nil
	}
	what := "mediated devices of it"
	if strings.HasPrefix(found[0], "mediated") {
		what = "the PCI function that it is a part of"
	}
	return []Note{{
		Place: r.Place,
		Text:  fmt.Sprintf("%s: offered here, and %s by %s: their containers share the hardware", andMore(found[0], len(found)), what, other.Place),
		Hint:  "match and exclude keep them apart; shared = true in both says that it is meant",
	}}
}
