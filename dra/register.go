package dra

import (
	"context"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/generic-dp/generic-dp/plugin"
)

// GetInfo is the kubelet's question when it finds the socket. Without an endpoint it takes
// the socket's own path.
func (s *service) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: "DRAPlugin", Name: Driver,
		SupportedVersions: []string{"v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"},
	}, nil
}

// NotifyRegistrationStatus is how the kubelet decided.
func (s *service) NotifyRegistrationStatus(_ context.Context, r *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	s.update(func() plugin.Status {
		s.accepted, s.problem = r.GetPluginRegistered(), ""
		if !s.accepted {
			s.problem = "the kubelet refuses the driver, which needs Kubernetes 1.34 or later: " + r.GetError()
		}
		return plugin.Status{Registered: s.accepted, Reason: s.problem}
	})
	return &registration.RegistrationStatusResponse{}, nil
}
