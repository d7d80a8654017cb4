package holds_test

import (
	"testing"

	"github.com/generic-dp/generic-dp/internal/holds"
)

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
