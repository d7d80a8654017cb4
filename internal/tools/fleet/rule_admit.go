package fleet

import (
	"strings"
)

// admissionHints explain the messages of the kubelet's device manager
// (k8s.io/kubernetes/pkg/kubelet/cm/devicemanager) and of this program. The first column is a part
// of the message.
var admissionHints = []struct{ part, meaning string }{
	{"cannot allocate unregistered device", "the plugin had not registered when the kubelet started, as after a reboot"},
	{"no healthy devices present", "the device was missing, or not available yet"},
	{"previously allocated devices are no longer healthy", "the device that the pod had is gone, and no other device replaces it"},
	{"requested number of devices unavailable", "fewer devices were free than the pod requests"},
	{"is still used: the kubelet has freed it", "processes of a deleted pod still use the device"},
}

// admissionRefused: the kubelet has refused the pod. It never tries again. The kubelet also sets a
// reason for a pod that it evicts.
func admissionRefused(e *Evidence) *Reason {
	if e.Pod == nil || e.Pod.Status.Phase != "Failed" || e.Pod.Status.Reason == "" {
		return nil
	}
	status := &e.Pod.Status
	reason := &Reason{
		Text:    "the kubelet of " + e.Pod.Spec.NodeName + " has refused the pod: " + status.Reason,
		Details: []string{status.Message},
	}
	if status.Reason == "Evicted" {
		reason.Text = "the pod was evicted from " + e.Pod.Spec.NodeName
	}
	for _, hint := range admissionHints {
		if strings.Contains(status.Message, hint.part) {
			reason.Details = append(reason.Details, "that is: "+hint.meaning)
		}
	}
	remove := "kubectl delete pod -n " + e.Namespace + " " + e.Name
	// The controller has made another pod by now, with another name.
	if owner := workload(e.Pod); owner != "" {
		reason.Do = []string{owner + " makes another pod; " + remove + " removes this one"}
		return reason
	}
	reason.Do = []string{"the kubelet does not try again: " + remove + ", and create it again; a Deployment does that by itself"}
	return reason
}
