// Command floor is the least that a device plugin can be: resources with a fixed list, the kubelet's API
// package and grpc-go, and nothing else. The benchmarks compare the program with it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// slots is the number of devices of each resource.
const slots = 10

func main() {
	dir := flag.String("kubelet-dir", v1beta1.DevicePluginPath, "the directory of the kubelet's socket")
	resources := flag.Int("resources", 2, "the number of resources")
	flag.Parse()
	for i := range *resources {
		if err := serve(*dir, i); err != nil {
			log.Fatal(err)
		}
	}
	select {}
}

// serve serves a resource and registers it.
func serve(dir string, number int) error {
	socket := fmt.Sprintf("floor-%d.sock", number)
	listener, err := net.Listen("unix", filepath.Join(dir, socket))
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, plugin{})
	go func() {
		log.Fatal(server.Serve(listener))
	}()
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = v1beta1.NewRegistrationClient(conn).Register(context.Background(), &v1beta1.RegisterRequest{
		Version:      v1beta1.Version,
		Endpoint:     socket,
		ResourceName: fmt.Sprintf("example.com/r%d", number),
	})
	return err
}

// plugin offers ten slots of /dev/null.
type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
}

func (plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

func (plugin) ListAndWatch(_ *v1beta1.Empty, stream v1beta1.DevicePlugin_ListAndWatchServer) error {
	list := &v1beta1.ListAndWatchResponse{}
	for i := range slots {
		list.Devices = append(list.Devices, &v1beta1.Device{ID: fmt.Sprint(i), Health: v1beta1.Healthy})
	}
	if err := stream.Send(list); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (plugin) Allocate(_ context.Context, request *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	response := &v1beta1.AllocateResponse{}
	for range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &v1beta1.ContainerAllocateResponse{
			Devices: []*v1beta1.DeviceSpec{{HostPath: "/dev/null", ContainerPath: "/dev/null", Permissions: "rw"}},
		})
	}
	return response, nil
}
