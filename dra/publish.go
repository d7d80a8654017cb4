package dra

import (
	"context"
	"log/slog"

	"github.com/generic-dp/generic-dp/internal/kubeapi"
)

// Options of a Publisher.
type Options struct {
	// API is the client of the API server.
	API *kubeapi.Client
	// Node is the name of the node.
	Node string
	// Changed is called when Problem has changed; it must not block.
	Changed func()
	Log     *slog.Logger
}

// Publisher keeps the ResourceSlices of the node equal to its devices. Only one instance
// on a node may Run.
type Publisher struct {
	Options
}

// NewPublisher makes a Publisher; Run runs it.
func NewPublisher(o Options) *Publisher { return &Publisher{Options: o} }

// Set replaces the devices. It never blocks.
func (p *Publisher) Set([]Device) {}

// Problem is why the devices are not published and what to change, for an administrator;
// empty if they are, or if there is nothing to change, as while the API server is away.
func (p *Publisher) Problem() string { return "" }

// Run publishes until ctx is cancelled, which is no error; slices stay. Nothing is
// published before the first Set.
func (p *Publisher) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
