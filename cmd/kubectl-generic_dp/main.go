// Command kubectl-generic_dp is the plugin kubectl generic-dp. kubectl finds a plugin by the name of
// its file, in which "_" stands for "-".
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/generic-dp/generic-dp/internal/tools/plugin"
)

// version is set by the linker: -X main.version=v1.2.3. A plain go build leaves it "unknown".
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := plugin.Run(ctx, version, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
