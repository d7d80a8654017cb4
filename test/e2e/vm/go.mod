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
	github.com/go-ole/go-ole v1.2.6 // indirect
	github.com/jaypipes/ghw v0.26.0 // indirect
	github.com/jaypipes/pcidb v1.1.1 // indirect
	github.com/yusufpapurcu/wmi v1.2.4 // indirect
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	golang.org/x/tools v0.52.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1 // indirect
	google.golang.org/grpc v1.85.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
	howett.net/plist v1.0.2-0.20250314012144-ee69052608d9 // indirect
)

replace github.com/generic-dp/generic-dp => ../../..
