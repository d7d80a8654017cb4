package holds_test

import (
	"testing"

	"github.com/generic-dp/generic-dp/internal/holds"
)

// The reasons why a pod that had a slot still holds it.
func TestPodHolds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		isNamed, hasCgroup bool
		want               bool
	}{
		"it runs":                                    {true, true, true},
		"the kubelet restores it after a reboot":     {true, false, true},
		"it waits for its network":                   {true, false, true},
		"it waits for its predecessor to end":        {true, false, true},
		"it waits for a volume":                      {true, true, true},
		"it was deleted with --force and runs":       {false, true, true},
		"it is in back-off without a process":        {false, true, true},
		"it ended, and the kubelet has forgotten it": {false, false, false},
	} {
		if got := holds.PodHolds(test.isNamed, test.hasCgroup); got != test.want {
			t.Errorf("%s: it holds the slot: %t, want %t", name, got, test.want)
		}
	}
}

// The reasons for which the kubelet may or may not give a slot to another pod.
func TestRefusesSlot(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		former      holds.PodState
		isSuccessor bool
		want        bool
	}{
		"the former pod runs":                        {holds.PodRunning, false, true},
		"the former version of the static pod runs":  {holds.PodRunning, true, false},
		"the former pod has ended":                   {holds.PodEnded, false, false},
		"the former version has ended":               {holds.PodEnded, true, false},
		"the host's cgroups are not visible":         {holds.PodUnknown, false, false},
		"neither cgroups nor the predecessor matter": {holds.PodUnknown, true, false},
	} {
		if got := holds.RefusesSlot(test.former, test.isSuccessor); got != test.want {
			t.Errorf("%s: the slot is refused: %t, want %t", name, got, test.want)
		}
	}
}

// The reasons for which a claim has ended or not.
func TestClaimEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		evidence holds.ClaimEvidence
		want     holds.ClaimHold
	}{
		"unprepared after its pods": {
			evidence: holds.ClaimEvidence{Pods: holds.PodEnded, HaveRun: true, IsReleased: true},
		},
		"unprepared before a process started": {
			evidence: holds.ClaimEvidence{Pods: holds.PodEnded, IsReleased: true, MayStart: true},
		},
		"unprepared while a pod runs that was deleted with --force": {
			evidence: holds.ClaimEvidence{Pods: holds.PodRunning, HaveRun: true, IsReleased: true},
			want:     holds.HeldByPod,
		},
		"unprepared, and processes ran whose end cannot be seen": {
			evidence: holds.ClaimEvidence{Pods: holds.PodUnknown, HaveRun: true, IsReleased: true},
			want:     holds.HeldByLostPod,
		},
		"unprepared, and its pods were never known": {
			evidence: holds.ClaimEvidence{Pods: holds.PodUnknown, IsReleased: true},
		},
		"prepared, and its pods are between two processes": {
			evidence: holds.ClaimEvidence{Pods: holds.PodEnded, HaveRun: true},
			want:     holds.HeldByRecord,
		},
		"lost by the kubelet and the API server": {
			evidence: holds.ClaimEvidence{Pods: holds.PodEnded, HaveRun: true, IsAbsent: true},
		},
		"lost, and a pod still runs": {
			evidence: holds.ClaimEvidence{Pods: holds.PodRunning, HaveRun: true, IsAbsent: true},
			want:     holds.HeldByPod,
		},
		"lost, and its pods are not known": {
			evidence: holds.ClaimEvidence{Pods: holds.PodUnknown, IsAbsent: true},
			want:     holds.HeldByUnseenPod,
		},
		"lost a moment after it was prepared": {
			evidence: holds.ClaimEvidence{Pods: holds.PodEnded, IsAbsent: true, MayStart: true},
			want:     holds.HeldByStart,
		},
	} {
		if got := test.evidence.Hold(); got != test.want {
			t.Errorf("%s: held for reason %d, want %d", name, got, test.want)
		}
	}
}
