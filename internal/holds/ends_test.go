package holds_test

import (
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/holds"
)

// The reasons for which a claim has ended or not.
func TestClaimEnds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		evidence holds.ClaimEvidence
		want     string
	}{
		"unprepared after its pods": {
			evidence: holds.ClaimEvidence{Pods: holds.PodEnded, HaveRun: true, IsReleased: true},
		},
		"unprepared before a process started": {
			evidence: holds.ClaimEvidence{Pods: holds.PodEnded, IsReleased: true, MayStartFor: 5 * time.Second},
		},
		"unprepared while a pod runs that was deleted with --force": {
			evidence: holds.ClaimEvidence{Pods: holds.PodRunning, RunningPod: "p", HaveRun: true, IsReleased: true},
			want:     "processes of its pod p still run",
		},
		"unprepared, and processes ran whose end cannot be seen": {
			evidence: holds.ClaimEvidence{Pods: holds.PodUnknown, HaveRun: true, IsReleased: true},
			want:     "processes of its pods ran",
		},
		"unprepared, and its pods were never known": {
			evidence: holds.ClaimEvidence{Pods: holds.PodUnknown, IsReleased: true},
		},
		"prepared, and its pods are between two processes": {
			evidence: holds.ClaimEvidence{Pods: holds.PodEnded, HaveRun: true},
			want:     "the API server or the kubelet may have it",
		},
		"lost by the kubelet and the API server": {
			evidence: holds.ClaimEvidence{Pods: holds.PodEnded, HaveRun: true, IsAbsent: true},
		},
		"lost, and a pod still runs": {
			evidence: holds.ClaimEvidence{Pods: holds.PodRunning, RunningPod: "p", HaveRun: true, IsAbsent: true},
			want:     "processes of its pod p still run",
		},
		"lost, and its pods are not known": {
			evidence: holds.ClaimEvidence{Pods: holds.PodUnknown, IsAbsent: true},
			want:     "no source tells whether its containers have ended",
		},
		"lost a moment after it was prepared": {
			evidence: holds.ClaimEvidence{Pods: holds.PodEnded, IsAbsent: true, MayStartFor: 5 * time.Second},
			want:     "its pod may start within 5s",
		},
	} {
		got := test.evidence.Hold()
		if test.want == "" && got != nil || test.want != "" && (got == nil || !strings.Contains(got.Error(), test.want)) {
			t.Errorf("%s: held because %v, want %q", name, got, test.want)
		}
	}
}
