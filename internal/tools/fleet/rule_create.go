package fleet

import "strings"

// quotaExceeded: a ResourceQuota forbids the pod. The pod does not exist then, only an event of the
// object that should create it (k8s.io/apiserver/pkg/admission/plugin/resourcequota).
func quotaExceeded(e *Evidence) *Reason {
	event := e.failedCreate(isQuota)
	if event == nil {
		return nil
	}
	return &Reason{
		Text:    "a ResourceQuota of namespace " + e.Namespace + " forbids the pod",
		Details: []string{event.InvolvedObject.Kind + " " + event.InvolvedObject.Name + ": " + event.Message},
		Do: []string{
			"kubectl describe quota -n " + e.Namespace + " shows what is used; delete other pods, or raise requests.RESOURCE in the quota",
		},
	}
}

// isQuota reports whether a message is about an exceeded quota.
func isQuota(message string) bool { return strings.Contains(message, "exceeded quota") }

// isOther reports whether a message is not about a quota.
func isOther(message string) bool { return !isQuota(message) }

// notCreated: the API server refuses the pod for another reason. Examples are Pod Security
// admission and webhooks.
func notCreated(e *Evidence) *Reason {
	event := e.failedCreate(isOther)
	if event == nil {
		return nil
	}
	return &Reason{
		Text:    "the API server refuses the pod of " + event.InvolvedObject.Kind + " " + event.InvolvedObject.Name,
		Details: []string{event.Message},
		Do:      []string{"change the pod template as the message says"},
	}
}

// failedCreate returns the latest event about a pod that could not be created, nil if there is none
// or if the pod exists.
func (e *Evidence) failedCreate(isMeant func(message string) bool) *Event {
	if e.Pod != nil {
		return nil
	}
	var latest *Event
	for i := range e.Events {
		event := &e.Events[i]
		isFailure := event.Reason == "FailedCreate" && e.creates(event.InvolvedObject.Name)
		if !isFailure || !isMeant(event.Message) {
			continue
		}
		if latest == nil || event.at().After(latest.at()) {
			latest = event
		}
	}
	return latest
}

// creates reports whether an object of some name creates the pod, or a pod of the workload, that
// the user asked about. The names of pods, ReplicaSets and Jobs begin with the name of their owner.
// It may be wrong about workloads whose names begin alike.
func (e *Evidence) creates(owner string) bool {
	return owner == e.Name || strings.HasPrefix(owner, e.Name+"-") || strings.HasPrefix(e.Name, owner+"-")
}
