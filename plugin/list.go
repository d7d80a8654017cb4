package plugin

import (
	"fmt"
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
		kept   string           // why the list is kept back
	)
	for {
		list, changed := s.source.Devices()
		reason := tooLong(list)
		switch {
		case reason != "":
			if reason != kept {
				s.log.Error("list not sent", "reason", reason)
			}
			if first {
				s.setStatus(Status{Reason: reason})
			}
		case first || !sameMessage(sent, list):
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
		kept = reason
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

// tooLong says why the kubelet does not take list; it is empty where it does. A
// list that it does not take is kept back, and the kubelet stays with the one
// that it has.
func tooLong(list []device.Listed) string {
	n := MessageSize(list)
	if n <= MaxMessage {
		return ""
	}
	return fmt.Sprintf("the list of %d devices takes %d bytes: the kubelet takes at most %d", len(list), n, MaxMessage)
}
