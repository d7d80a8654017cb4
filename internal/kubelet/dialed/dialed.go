// Package dialed makes gRPC clients of open connections. A client that dials hides the
// state of the socket, waits for a second after a refusal, and redials at any time.
package dialed

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

var errEnded = errors.New("the connection has ended")

// Client returns a client of a connection. Its calls fail when the connection ends.
func Client(conn net.Conn, options ...grpc.DialOption) (*grpc.ClientConn, error) {
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
	return grpc.NewClient("passthrough:///kubelet", append(options,
		grpc.WithContextDialer(dial), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority("localhost"), grpc.WithNoProxy())...)
}
