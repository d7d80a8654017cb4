package plugin

import (
	"time"

	"google.golang.org/grpc"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/device"
)

// stream sends lists until the kubelet or the session ends it. A change is sent
// at once, further ones together when the window has passed, and a list that
// looks the same to the kubelet never.
func (s *session) stream(stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	var (
		done   = stream.Context().Done()
		sent   []device.Listed
		first  = true
		window <-chan time.Time // while it lasts, changes wait
		short  bool             // the list is longer than the kubelet takes
	)
	for {
		all, changed := s.source.Devices()
		list := fitting(all)
		if cut := len(list) < len(all); cut != short {
			if short = cut; cut {
				s.log.Error("list is larger than the kubelet takes: the last devices are left out",
					"slots", len(all), "bytes", MessageSize(all), "limit", MaxMessage)
			}
		}
		if first || !device.SameList(sent, list) {
			if err := stream.Send(message(list)); err != nil {
				return err
			}
			s.listedOnce.Do(func() { close(s.listed) })
			if s.hooks.Listed != nil {
				s.hooks.Listed(len(list))
			}
			if !first {
				window = time.After(s.timing.window)
			}
			first, sent = false, list
		}
		select {
		case <-changed:
		case <-done:
			return stream.Context().Err()
		case <-s.quit:
			return nil
		}
		if window == nil {
			continue
		}
		select {
		case <-window:
			window = nil
		case <-done:
			return stream.Context().Err()
		case <-s.quit:
			return nil
		}
	}
}
