package plugin

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
