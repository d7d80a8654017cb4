package dra

import (
	"time"

	"google.golang.org/grpc"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
)

// lease is how long the kubelet believes a report, in seconds: as long as the stream is
// there. By default it is 30 s, and each node would wake up for it.
const lease = int64(10 * 365 * 24 * time.Hour / time.Second)

// NodeWatchResources sends the health of all devices at once and after every change.
func (s *service) NodeWatchResources(_ *health.NodeWatchResourcesRequest, stream grpc.ServerStreamingServer[health.NodeWatchResourcesResponse]) (err error) {
	defer s.recover("NodeWatchResources", &err)
	for {
		devices, changed := s.Source.Devices()
		if err := stream.Send(s.report(devices)); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-s.quit:
			return nil
		}
	}
}

func (d *Server) report(devices []Device) *health.NodeWatchResourcesResponse {
	now := time.Now().Unix()
	r := &health.NodeWatchResourcesResponse{}
	for i := range devices {
		v := health.HealthStatus_UNHEALTHY
		if devices[i].State == Healthy || devices[i].State == Withheld {
			v = health.HealthStatus_HEALTHY
		}
		r.Devices = append(r.Devices, &health.DeviceHealth{
			Device: &health.DeviceIdentifier{PoolName: d.Node, DeviceName: devices[i].Name()},
			Health: v, Message: devices[i].Reason, LastUpdatedTime: now, HealthCheckTimeoutSeconds: lease,
		})
	}
	return r
}
