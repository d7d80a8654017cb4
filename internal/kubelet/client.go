package kubelet

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// errEnded is the error of a call after the end of the connection.
var errEnded = errors.New("the connection has ended")

// Connect returns a gRPC client of a connection. Its calls fail when the connection ends. If the client
// dialed itself, it would hide the state of the socket, wait for a second after a refusal, and redial at
// any time.
func Connect(conn net.Conn, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	conns := make(chan net.Conn, 1)
	conns <- conn
	dial := func(context.Context, string) (net.Conn, error) {
		select {
		case conn := <-conns:
			return conn, nil
		default:
			return nil, errEnded
		}
	}
	// The name in the target is not resolved. The environment must not send it to a proxy.
	options = append(options,
		grpc.WithContextDialer(dial),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(),
	)
	return grpc.NewClient("passthrough:///kubelet", options...)
}
