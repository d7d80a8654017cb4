package fleet

import "strings"

// notCreated: the API server refuses the pod, such as by a ResourceQuota, Pod Security admission or
// a webhook. The pod does not exist then, only an event of the object that should create it.
func notCreated(e *Evidence) *Reason {
	if e.Pod != nil {
		return nil
	}
	event := e.latest(func(event *Event) bool {
		return event.Reason == "FailedCreate" && e.creates(event.InvolvedObject.Name)
	})
	if event == nil {
		return nil
	}
	do := "change the pod template as the message says"
	// See k8s.io/apiserver/pkg/admission/plugin/resourcequota.
	if strings.Contains(event.Message, "exceeded quota") {
		do = "kubectl describe quota -n " + e.Namespace + " shows what is used; delete other pods, or raise requests.RESOURCE in the quota"
	}
	return &Reason{
		Text:    "the API server refuses the pod of " + event.InvolvedObject.Kind + " " + event.InvolvedObject.Name,
		Details: []string{event.Message},
		Do:      []string{do},
	}
}

// creates reports whether an object of some name creates the pod, or a pod of the workload, that
// the user asked about. The names of pods, ReplicaSets and Jobs begin with the name of their owner.
// It may be wrong about workloads whose names begin alike.
func (e *Evidence) creates(owner string) bool {
	return owner == e.Name || strings.HasPrefix(owner, e.Name+"-") || strings.HasPrefix(e.Name, owner+"-")
}
