// Package fleet answers questions about all nodes of a cluster: which node has a device, who
// holds it, why a pod does not get one, and what an edit of the configuration would change.
//
// It has no client of the API server. Every request is a call of the user's own kubectl, so
// that it has the user's rights and needs no credentials:
//
//   - kubectl get reads objects of Kubernetes. objects.go has the fields that are used.
//   - kubectl exec runs this program in the DaemonSet's pod on a node. The program there knows
//     its devices and their holders.
//
// # How to read it
//
// kubectl.go calls kubectl, members.go finds the pods of the DaemonSet, and each.go asks all of
// them at once. status.go, find.go and diff.go merge the answers of the nodes into one report.
//
// For a pod, why.go reads everything that may matter, once: the evidence. reasons.go explains it, and
// leaves to kubectl describe what the events of the pod say.
package fleet

import "time"

// Fleet is the cluster, as kubectl shows it.
type Fleet struct {
	Kubectl Kubectl
	// Namespace of the DaemonSet. If it is empty, all namespaces are searched.
	Namespace string
	// Selector selects the DaemonSet's pods by label.
	Selector string
	// Parallel is how many nodes are asked at the same time.
	Parallel int
	// Timeout is how long a node may take to answer.
	Timeout time.Duration
}

// DefaultSelector selects the pods of deploy/generic-dp.yaml and of the chart.
const DefaultSelector = "app.kubernetes.io/name=generic-dp"

// readTimeout limits a kubectl get. The list of all nodes of a large cluster takes seconds.
const readTimeout = 30 * time.Second
