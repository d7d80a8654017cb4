package status

import (
	"cmp"
	"fmt"

	"github.com/generic-dp/generic-dp/internal/order"
)

// heldSlot is a slot that a container of a pod holds.
type heldSlot struct {
	// Holder has the ID of the slot and the container.
	Holder
	// resource is the title of the resource.
	resource string
	// device is the device of the slot.
	device *Device
}

// pods writes the pods that hold devices, each with its devices. Pods with an Unhealthy device come
// first.
func (p page) pods() {
	byPod := p.heldByPod()
	if len(byPod) == 0 {
		return
	}
	// A long list would hide what follows.
	slots := 0
	for _, held := range byPod {
		slots += len(held)
	}
	p.WriteString(`<details data-key="pods"`)
	if slots <= maxOpen || p.filter != "" {
		p.WriteString(" open")
	}
	p.WriteString("><summary>")
	p.element("h2", "Pods")
	p.element(`span class="soft"`, fmt.Sprintf(" %s, %s", count(len(byPod), "pod"), count(slots, "slot")))
	p.WriteString(`</summary><table class="pods"><thead><tr>`)
	for _, title := range []string{"Pod", "Container", "Resource", "ID", "Health"} {
		p.element(`th scope="col"`, title)
	}
	p.WriteString("</tr></thead>\n")
	for i, held := range byPod {
		if p.Len() >= maxPage {
			p.WriteString("<tr>")
			p.element(`td colspan="5"`, fmt.Sprintf("%d more pods: filter them, or see /status.json", len(byPod)-i))
			p.WriteString("</tr>\n")
			break
		}
		p.pod(held)
	}
	p.WriteString("</table></details>\n")
}

// pod writes the slots of one pod.
func (p page) pod(held []heldSlot) {
	p.WriteString("<tbody>")
	for i, slot := range held {
		// The name of the pod spans its rows.
		p.WriteString(`<tr class="` + slot.device.Health + `">`)
		if i == 0 {
			open := fmt.Sprintf(`th scope="rowgroup" rowspan="%d"`, len(held))
			p.WriteString("<" + open + ">")
			p.element("span", slot.Pod)
			p.WriteString("<br>")
			p.element("small", slot.Namespace)
			p.end(open)
		}
		p.element(`td data-label="Container"`, slot.Container)
		p.element(`td data-label="Resource"`, slot.resource)
		p.WriteString(`<td data-label="ID">`)
		p.element("code", slot.Holder.ID)
		p.WriteString(`</td><td data-label="Health">`)
		p.text(slot.device.Health)
		if slot.device.Reason != "" {
			p.WriteString("<br>")
			p.text(slot.device.Reason)
		}
		p.WriteString("</td></tr>\n")
	}
}

// heldByPod returns the held slots that match the filter, by pod. The slots of a pod have the order
// of the resources and devices.
func (p page) heldByPod() [][]heldSlot {
	var all []heldSlot
	for _, r := range p.status.Resources {
		for i := range r.Devices {
			d := &r.Devices[i]
			for _, h := range d.Held {
				slot := heldSlot{
					Holder:   h,
					resource: r.Title(),
					device:   d,
				}
				if p.matchesSlot(slot) {
					all = append(all, slot)
				}
			}
		}
	}
	order.Stable(all, comparePods)
	var byPod [][]heldSlot
	for i, slot := range all {
		isSamePod := i > 0 && comparePods(all[i-1], slot) == 0
		if !isSamePod {
			byPod = append(byPod, nil)
		}
		last := len(byPod) - 1
		byPod[last] = append(byPod[last], slot)
	}
	order.Stable(byPod, func(a, b []heldSlot) int {
		return cmp.Compare(podRank(a), podRank(b))
	})
	return byPod
}

// matchesSlot reports whether the container, the resource or the device of a slot matches the
// filter. Another holder of the same device does not count.
func (p page) matchesSlot(slot heldSlot) bool {
	d := slot.device
	return p.matches(slot.Namespace+"/"+slot.Pod+"/"+slot.Container, slot.resource) ||
		p.matches(d.ID, d.Product, d.Health, d.Reason) ||
		p.matches(d.Host()...)
}

// comparePods compares the pods of two slots by namespace and name.
func comparePods(a, b heldSlot) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod))
}

// podRank is the place of a pod in the order of the table: the place of its worst device. held has
// at least one slot.
func podRank(held []heldSlot) int {
	rank := held[0].device.rank()
	for _, slot := range held {
		rank = min(rank, slot.device.rank())
	}
	return rank
}

// count is a number with a noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
