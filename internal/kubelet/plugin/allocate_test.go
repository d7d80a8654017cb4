package plugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/status"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/generic-dp/generic-dp/internal/device"
)

// testServer is called directly, without a socket.
func testServer(source Source, logs *records) *server {
	o := Options{Resource: gpu, Watch: NewKubeletWatch("/", discard), Source: source, Log: discard, Hooks: noHooks}
	if logs != nil {
		o.Log = slog.New(logs)
	}
	return newServer(New(o))
}

func request(containers ...[]string) *v1beta1.AllocateRequest {
	req := &v1beta1.AllocateRequest{}
	for _, ids := range containers {
		req.ContainerRequests = append(req.ContainerRequests, &v1beta1.ContainerAllocateRequest{DevicesIds: ids})
	}
	return req
}

func TestAllocateErrors(t *testing.T) {
	t.Parallel()
	source := newSource(healthy("a", "boom", "gone")...)
	source.allocate = func(_ context.Context, ids []string) (device.Response, error) {
		switch ids[0] {
		case "boom":
			panic("no such luck")
		case "gone":
			return device.Response{}, fmt.Errorf("device %q: %q does not exist", ids[0], "/dev/x")
		}
		return device.Response{}, nil
	}
	tests := []struct {
		ids  []string
		want string
	}{
		{[]string{"gone"}, `resource "example.com/gpu": device "gone": "/dev/x" does not exist`},
		{[]string{"boom"}, `resource "example.com/gpu": internal error: panic: no such luck`},
	}
	for _, tt := range tests {
		logs := &records{}
		var hooked error
		s := testServer(source, logs)
		s.Hooks.Allocated = func(_ time.Duration, err error) { hooked = err }
		// One invalid container fails the request.
		_, err := s.Allocate(t.Context(), request([]string{"a"}, tt.ids))
		if got := status.Convert(err).Message(); got != tt.want {
			t.Errorf("%q: got  %s\nwant %s", tt.ids, got, tt.want)
		}
		if !errors.Is(hooked, err) {
			t.Errorf("%q: hook got %v", tt.ids, hooked)
		}
		if got := logs.reasons("allocation refused"); !slices.Equal(got, []string{tt.want}) {
			t.Errorf("%q: logged %q", tt.ids, got)
		}
	}
}

func TestAllocateTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		source := newSource(healthy("a")...)
		source.allocate = func(context.Context, []string) (device.Response, error) {
			<-stuck // ignores its context
			return device.Response{}, nil
		}
		source.prefer = func([]string, []string, int) []string {
			<-stuck
			return []string{"a"}
		}
		s := testServer(source, nil)
		began := time.Now()
		_, err := s.Allocate(t.Context(), request([]string{"a"}))
		if err == nil || !strings.Contains(err.Error(), "no answer within") {
			t.Errorf("got %v, want no answer in time", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("answered after %s", took)
		}
		began = time.Now()
		resp, err := s.GetPreferredAllocation(t.Context(), preferRequest([]string{"a"}, nil, 1))
		if err != nil || len(resp.ContainerResponses) != 1 || len(resp.ContainerResponses[0].DeviceIDs) != 0 {
			t.Errorf("preferred: got %v, %v, want an empty answer", resp, err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("preferred after %s", took)
		}
		close(stuck)
	})
}

func preferRequest(available, must []string, size int32) *v1beta1.PreferredAllocationRequest {
	return &v1beta1.PreferredAllocationRequest{ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{
		{AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: size},
	}}
}
