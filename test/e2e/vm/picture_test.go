package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/vm/wire"
)

// framesEnv names the directory for the output of TestFrames: the state, and frames
// of a terminal, see hack/pictures.sh.
const framesEnv = "GENERIC_DP_FRAMES"

// TestFrames takes the status for make pictures: the stick of a pod is unplugged, another
// one takes its port, and it is plugged in again.
func TestFrames(t *testing.T) {
	dir := os.Getenv(framesEnv)
	if dir == "" {
		t.Skip(framesEnv + " is not set: it is for make pictures")
	}
	const zigbee, pod, mine, other = "example.com/zigbee", "zigbee2mqtt", "A1B2C3", "D4E5F6"
	m := Boot(t, hotplugHardware...)
	m.Load(t, "usb")
	m.Serve(t, `
domain = "example.com"
[[resource]]
name = "zigbee"
match = { usb.id = "0403:6001", glob = "/dev/ttyUSB*" }
container.path = "/dev/zigbee"
[[resource]]
name = "console"
count = 4
match.glob = "/dev/ttyS0"
[[resource]]
name = "coral"
match.usb.id = "18d1:9302"
`)
	var frames []string
	frame := func(caption string, healthy, unhealthy []string) {
		t.Helper()
		want := wire.Want{Resource: zigbee}
		for _, serial := range healthy {
			want.Healthy = append(want.Healthy, bySerial(serial))
		}
		for _, serial := range unhealthy {
			want.Unhealthy = append(want.Unhealthy, bySerial(serial))
		}
		m.Want(t, want)
		screen := m.Run(t, "status")
		for range 100 { // the holders may be some seconds old
			if strings.Contains(screen, pod) {
				break
			}
			screen = m.Run(t, "status")
		}
		frames = append(frames, caption+"\n"+screen)
	}
	stick := m.Plug(t, dongle("1", mine))
	m.Want(t, wire.Want{Resource: zigbee, Healthy: []string{bySerial(mine)}})
	m.Allocate(t, pod, zigbee, bySerial(mine))
	frame("a stick, held by a pod", []string{mine}, nil)
	stick.Pull(t)
	frame("the stick is pulled", nil, []string{mine})
	m.Plug(t, dongle("1", other))
	frame("another stick takes its port, and its name", []string{other}, []string{mine})
	var state string
	m.call(t, "State", wire.None{}, &state)
	m.Plug(t, dongle("3", mine))
	frame("the stick comes back in another port", []string{mine, other}, nil)
	for name, text := range map[string]string{"frames": strings.Join(frames, "\f"), "status.json": state} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
