// Package podsapi learns from the kubelet's Pods API when a pod has ended. Kubelets have this API by
// default since 1.37 (KEP-4188, feature gate PodsAPI).
//
// The kubelet sends an event whenever the status of any pod of the node changes, with the whole pod,
// and none while nothing changes (WatchPods and OnPodUpdated in pkg/kubelet/apis/pods/server.go). Of
// an event only its type is read: the generated types of the API would add a pod's whole schema.
package podsapi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/generic-dp/generic-dp/internal/kubelet/dialed"
)

// method is the name of the call.
const method = "/v1alpha1.Pods/WatchPods"

// maxMessage bounds an event. The API server stores pods of up to 1.5 MB or so; the status of the
// kubelet comes in addition.
const maxMessage = 4 << 20

// eventType is the type of an event (EventType in k8s.io/kubelet/pkg/apis/pods/v1alpha1).
type eventType uint64

const (
	// deleted says that a pod has ended, also if its object stays. The kubelet sends it after it has
	// removed the containers and the cgroup of the pod (SyncTerminatedPod in pkg/kubelet/kubelet.go).
	// By then, PodResources no longer lists the pod.
	deleted eventType = 3
	// listed ends the list of existing pods, with which a watch begins.
	listed eventType = 4
)

// Socket returns the path of the socket of the Pods API, given the path of the kubelet's PodResources
// socket, "/var/lib/kubelet/pod-resources/kubelet.sock": both are in directories of the kubelet's
// root directory. If that path is another one, the result is empty.
func Socket(podResources string) string {
	directory := filepath.Dir(podResources)
	root, isUsual := strings.CutSuffix(directory, "/pod-resources")
	if !isUsual {
		return ""
	}
	return root + "/pods-api/pods-api.sock"
}

// Watch calls ended when it has begun to watch the pods of the node, and whenever a pod has ended,
// until ctx is cancelled or the kubelet ends the watch. It always returns an error.
func Watch(ctx context.Context, socket string, ended func()) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	client, err := dialed.Client(conn, grpc.WithDefaultCallOptions(
		grpc.MaxCallRecvMsgSize(maxMessage),
		grpc.ForceCodecV2(codec{}),
	))
	if err != nil {
		return err
	}
	defer client.Close()
	stream, err := client.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := errors.Join(stream.SendMsg(nil), stream.CloseSend()); err != nil {
		return fmt.Errorf("WatchPods: %w", err)
	}
	for {
		var event eventType
		if err := stream.RecvMsg(&event); err != nil {
			return fmt.Errorf("WatchPods: %w", err)
		}
		if event == deleted || event == listed {
			ended()
		}
	}
}

// codec writes empty messages, and reads the type of a WatchPodsEvent.
type codec struct{}

// Name implements encoding.CodecV2.
func (codec) Name() string {
	return "proto"
}

// Marshal implements encoding.CodecV2.
func (codec) Marshal(any) (mem.BufferSlice, error) {
	return nil, nil
}

var errMalformed = errors.New("the event is malformed")

// Unmarshal implements encoding.CodecV2. The fields of a WatchPodsEvent are the type, a number, and
// the pod, which is skipped.
func (codec) Unmarshal(data mem.BufferSlice, event any) error {
	const (
		typeField  = 1
		wireVarint = 0
		wireBytes  = 2
	)
	r := data.Reader()
	defer r.Close()
	for r.Remaining() > 0 {
		tag, err := binary.ReadUvarint(r)
		if err != nil {
			return errMalformed
		}
		// value is the length of a field that consists of bytes.
		value, err := binary.ReadUvarint(r)
		if err != nil {
			return errMalformed
		}
		switch tag & 7 {
		case wireVarint:
			if tag>>3 == typeField {
				*event.(*eventType) = eventType(value)
			}
		case wireBytes:
			if value > uint64(r.Remaining()) {
				return errMalformed
			}
			if _, err := r.Discard(int(value)); err != nil {
				return errMalformed
			}
		default:
			return errMalformed
		}
	}
	return nil
}
