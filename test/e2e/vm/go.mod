// A module of its own, so that a run compiles neither Kubernetes nor a
// container runtime.
module github.com/generic-dp/generic-dp/test/e2e/vm

go 1.26.0

require (
	github.com/generic-dp/generic-dp v0.0.0
	golang.org/x/sys v0.49.0
	k8s.io/kubelet v0.37.2
)

require (
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/generic-dp/generic-dp => ../../..
