package holds_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/holds"
)

// A pod whose last process ends during the call does not refuse its slot.
func TestSlotOfEndingPod(t *testing.T) {
	onHost(t, func(h *host) {
		h.save(map[string][]string{podUID: {"a"}})
		h.cgroups.Start(podUID)
		b := h.start()
		time.AfterFunc(100*time.Millisecond, func() { h.cgroups.Wait(podUID) })
		h.mustGrant(b, wanted("a"))
	})
}

// It is not known who holds devices while the checkpoint cannot be read, and known again after that.
func TestUnreadCheckpoint(t *testing.T) {
	onHost(t, func(h *host) {
		h.must(os.Mkdir(h.checkpoint(), 0o700))
		b := h.start()
		if !b.View().IsHeld("a") {
			h.Error("a device counts as free")
		}
		if reason := b.View().Blocked(wanted("a")); !strings.Contains(reason, "not a regular file") {
			h.Errorf("blocked: %q", reason)
		}
		only := wanted("b")
		only.Exclusive = true
		h.mustRefuse(b, only, "not a regular file")
		h.mustGrant(b, wanted("a"))
		// A kubelet without a checkpoint has allocated nothing.
		h.must(os.Remove(h.checkpoint()))
		b.ReadCheckpoint(h.Context())
		h.mustGrant(b, only)
	})
}

// A kubelet starts without holds if it cannot parse its checkpoint. Later, somebody else wrote the file.
func TestUnparsableCheckpoint(t *testing.T) {
	onHost(t, func(h *host) {
		h.write("{")
		b := h.start()
		if reason := b.View().Unread(); reason != "" {
			h.Errorf("at the start: %s", reason)
		}
		h.read(b, map[string][]string{podUID: {"a"}})
		for _, text := range []string{"{", "{ "} {
			h.write(text)
			b.ReadCheckpoint(h.Context())
		}
		if b.View().Unread() == "" {
			h.Error("later: the checkpoint counts as read")
		}
		h.wantHolders(b, "later", "a", podUID)
		for _, message := range []string{"the kubelet's checkpoint can't be parsed", "the kubelet's checkpoint can't be read"} {
			if n := strings.Count(h.log.String(), message); n != 1 {
				h.Errorf("%q is logged %d times, want once", message, n)
			}
		}
	})
}

// A grant holds its slot for a minute, and until the checkpoint of that time was read.
func TestGrantExpires(t *testing.T) {
	onHost(t, func(h *host) {
		h.save(nil)
		b := h.start()
		h.mustGrant(b, wanted("a"))
		time.Sleep(59 * time.Second)
		h.wantHolders(b, "within a minute", "a", "grant")
		h.save(map[string][]string{nextUID: {"b"}})
		time.Sleep(2 * time.Second)
		h.wantHolders(b, "before the checkpoint is read", "a", "grant")
		b.ReadCheckpoint(h.Context())
		h.wantHolders(b, "after a minute", "a")
	})
}

// The pod of a grant is the first one in the checkpoint that did not have the slot before the call.
func TestGrantIsTakenOver(t *testing.T) {
	onHost(t, func(h *host) {
		h.save(map[string][]string{podUID: {"a"}})
		b := h.start()
		h.mustGrant(b, wanted("a"))
		h.read(b, map[string][]string{podUID: {"a"}})
		h.wantHolders(b, "with the former pod", "a", podUID, "grant")
		b.Save()
		b = h.start()
		h.wantHolders(b, "after a restart", "a", podUID, "grant")
		h.read(b, map[string][]string{nextUID: {"a"}})
		b.Look(h.Context())
		h.wantHolders(b, "with the new pod", "a", nextUID)
	})
}

// The journal keeps grants over a restart of the program, and not over a reboot.
func TestJournal(t *testing.T) {
	nothing := func(*host) {}
	remove := func(h *host) { h.must(os.Remove(h.journal())) }
	for name, test := range map[string]struct {
		between, before func(*host)
		want            []string
	}{
		"restart":            {nothing, nothing, []string{"a", "b"}},
		"another boot":       {nothing, func(h *host) { h.boot++ }, nil},
		"it is removed":      {remove, nothing, []string{"a", "b"}},
		"it is removed last": {nothing, remove, nil},
	} {
		t.Run(name, func(t *testing.T) {
			onHost(t, func(h *host) {
				b := h.start()
				h.mustGrant(b, wanted("a"))
				test.between(h)
				h.mustGrant(b, wanted("b"))
				test.before(h)
				b = h.start()
				var held []string
				for _, id := range []string{"a", "b"} {
					if len(b.View().Slots(id)) > 0 {
						held = append(held, id)
					}
				}
				if !slices.Equal(held, test.want) {
					h.Errorf("held: %q, want %q", held, test.want)
				}
				h.mustGrant(b, wanted("c"))
				other := wanted("other") // with the hardware of c
				other.Places = wanted("c").Places
				h.mustRefuse(h.start(), other, "held as c")
			})
		})
	}
}

// The journal belongs to the instance that answers: neither its successor nor its predecessor writes it.
func TestJournalDuringATakeOver(t *testing.T) {
	onHost(t, func(h *host) {
		first := h.start()
		second := h.instance()
		second.Load(h.Context(), false)
		h.mustGrant(first, wanted("a"))
		h.read(second, map[string][]string{podUID: {"x"}})
		first.Retire()
		second.Load(h.Context(), true)
		h.mustGrant(second, wanted("b"))
		h.read(first, map[string][]string{podUID: {"y"}})
		third := h.start()
		h.wantHolders(third, "after the take-over", "a", "grant")
		h.wantHolders(third, "after the take-over", "b", "grant")
	})
}

// Without its record, an exclusive device is refused. Other devices are not.
func TestJournalThatCannotBeWritten(t *testing.T) {
	onHost(t, func(h *host) {
		h.must(os.MkdirAll(filepath.Join(h.journal(), "of another program"), 0o700))
		b := h.start()
		only := wanted("a")
		only.Exclusive = true
		h.mustRefuse(b, only, "cannot be recorded")
		h.wantHolders(b, "after the refusal", "a")
		h.mustGrant(b, wanted("b"))
		h.wantHolders(b, "after the grant", "b", "grant")
	})
}

// A claim does not get what a container has in another way, unless it is prepared already.
func TestClaims(t *testing.T) {
	onHost(t, func(h *host) {
		b := h.start()
		h.mustGrant(b, wanted("a"))
		byClaim := wanted("a")
		byClaim.Resource = device.ResourceKey(part, true)
		conflicts, err := b.Reserve("claim", []holds.Wanted{byClaim})
		if err != nil || len(conflicts) != 1 || conflicts[0].Resource != part {
			h.Errorf("Reserve: %v, %v, want a conflict with the grant", conflicts, err)
		}
		h.wantHolders(b, "after the conflict", "a", "grant")
		b.Record("claim", []holds.Wanted{byClaim, wanted("b")})
		h.wantHolders(b, "recorded", "a", "grant", "claim")
		again := wanted("b")
		again.Resource = "example.com/other"
		if conflicts, err := b.Reserve("claim", []holds.Wanted{again}); err != nil || len(conflicts) > 0 {
			h.Errorf("Reserve of its own device: %v, %v", conflicts, err)
		}
		if conflicts, err := b.Reserve("next", []holds.Wanted{wanted("c")}); err != nil || len(conflicts) > 0 {
			h.Errorf("Reserve of another device: %v, %v", conflicts, err)
		}
		if conflicts, err := b.Reserve("last", []holds.Wanted{wanted("c")}); err != nil || len(conflicts) != 1 || conflicts[0].Claim != "next" {
			h.Errorf("Reserve of a slot that another claim has: %v, %v", conflicts, err)
		}
		b.Release("claim")
		h.wantHolders(b, "released", "b")
		b.SetClaims(map[string][]holds.Wanted{"last": {wanted("d")}}, nil)
		h.wantHolders(b, "replaced", "c")
		h.wantHolders(b, "replaced", "d", "last")
	})
}

// If the devices of a claim are not known, exclusive devices are not available.
func TestUnreadClaims(t *testing.T) {
	onHost(t, func(h *host) {
		b := h.start()
		b.SetClaims(nil, errors.New("no file"))
		only := wanted("a")
		only.Exclusive = true
		if reason := b.View().Blocked(only); !strings.Contains(reason, "no file") {
			h.Errorf("exclusive: blocked for %q", reason)
		}
		h.mustRefuse(b, only, "no file")
		if _, err := b.Reserve("claim", []holds.Wanted{only}); err == nil {
			h.Error("Reserve of an exclusive device succeeds")
		}
		if reason := b.View().Blocked(wanted("a")); reason != "" {
			h.Errorf("not exclusive: blocked for %q", reason)
		}
		h.mustGrant(b, wanted("a"))
	})
}

// The next version of a static pod gets the slot of the former one. No other pod gets it, and no pod at all
// from a kubelet that has started since: it has lost the hold. A pod that is not known is another one.
func TestSuccessorOfStaticPod(t *testing.T) {
	for name, test := range map[string]struct {
		pod    string
		starts int
		// noName and noAnswer are why the kubelet does not say which pods it has.
		noName   error
		noAnswer error
		isFree   bool
	}{
		"its next version":             {pod: "default/static", isFree: true},
		"name is not known":            {pod: "default/static", noName: errors.New("unavailable")},
		"kubelet does not answer":      {pod: "default/static", noAnswer: errors.New("unavailable")},
		"another pod":                  {pod: "default/other"},
		"after a start of the kubelet": {pod: "default/static", starts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			onHost(t, func(h *host) {
				h.save(map[string][]string{staticUID: {"a"}})
				h.cgroups.Start(staticUID)
				h.query = func() (map[string]string, error) {
					return map[string]string{"a": "default/static"}, test.noName
				}
				b := h.start()
				b.Look(h.Context()) // finds its name
				h.noPods = test.noAnswer
				h.pods = map[string]bool{test.pod: true}
				h.starts = test.starts
				if err := h.grant(b, wanted("a")); (err == nil) != test.isFree {
					h.Errorf("Grant: %v, want no error: %t", err, test.isFree)
				}
			})
		})
	}
}

// A checkpoint with endless pods takes limited memory.
func TestLimits(t *testing.T) {
	onHost(t, func(h *host) {
		h.save(nil)
		b := h.start()
		pods := map[string][]string{}
		for i := range 3 * holds.MaxHoldsPerSlot {
			pods[fmt.Sprint(podUID, i)] = []string{"a"}
		}
		h.read(b, pods)
		h.read(b, nil)
		if n := len(b.View().Slots("a")); n != holds.MaxHoldsPerSlot {
			h.Errorf("%d pods are kept for a slot, want %d", n, holds.MaxHoldsPerSlot)
		}
		for extra, isUnread := range []bool{false, true} {
			var slots []string
			for i := range holds.MaxHolds + extra {
				slots = append(slots, fmt.Sprint("slot", i))
			}
			h.read(b, map[string][]string{podUID: slots})
			if reason := b.View().Unread(); (reason != "") != isUnread {
				h.Errorf("%d holds: unread for %q, want it unread: %t", len(slots), reason, isUnread)
			}
		}
	})
}

// Only the kubelet can replace a checkpoint that somebody else has written while it runs: it is asked to.
func TestUnparsableCheckpointIsReplaced(t *testing.T) {
	onHost(t, func(h *host) {
		h.save(nil)
		b := h.start()
		h.mustGrant(b, wanted("a"))
		h.read(b, map[string][]string{podUID: {"a"}})
		h.write("{")
		b.ReadCheckpoint(h.Context())
		only := wanted("b")
		only.Exclusive = true
		h.mustRefuse(b, only, "unexpected end of JSON input")
		h.listAgain = func() {
			h.read(b, map[string][]string{podUID: {"a"}})
		}
		time.Sleep(time.Until(b.Look(h.Context())))
		b.Look(h.Context())
		h.mustGrant(b, only)
		if next := b.Look(h.Context()); !next.IsZero() {
			h.Errorf("the next look is at %s, want none", next)
		}
	})
}
