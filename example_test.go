package genericdp_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"

	genericdp "github.com/generic-dp/generic-dp"
)

const sticks = `
domain = "example.com"

[[resource]]
name = "zigbee"
match = { usb = { id = "10c4:ea60" }, glob = "/dev/ttyUSB*" }
container.path = "/dev/zigbee"
`

// A program that embeds the device plugin: it serves a Zigbee stick until it is interrupted.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	options := genericdp.DefaultOptions()
	options.ConfigText = []byte(sticks)
	options.RunDir = "/run/appliance/devices"
	options.StateDir = "/var/lib/appliance/devices"
	options.Log = slog.Default()
	if err := genericdp.Run(ctx, options); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
