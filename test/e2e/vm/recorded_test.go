package vm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// recordEnv names a directory for recorded machines, like testdata/machines.
const recordEnv = "GENERIC_DP_E2E_RECORD"

// maxRecording is the maximum size of a recorded machine, in bytes.
const maxRecording = 300 << 10

func recordedMachine(t *testing.T, m *Machine) {
	for _, c := range []struct {
		name, comment, config string
		devices               []Device
		want                  map[string][]string
	}{
		{
			name: "qemu-q35-usb-serial",
			comment: `QEMU 7.2, machine q35 with four xHCI controllers, Linux 6.1 of Debian: three
serial adapters at a hub (one with a serial number, one with a placeholder, one
without), and one at another controller.
Recorded in the emulated machine by test/e2e/vm, without udev.
`,
			config: serialByDevice,
			devices: []Device{
				{Driver: "usb-hub", Bus: "usb0.0", Port: "2"},
				dongle("2.1", "FTALPHA"), dongle("2.2", "0001"), dongle("2.3", ""),
				{Driver: "usb-serial", Bus: "usb1.0", Port: "1", Serial: "FTBRAVO"},
			},
			want: map[string][]string{
				serial: {bySerial("FTALPHA"), byPort(usb0, "2.2"), byPort(usb0, "2.3"), bySerial("FTBRAVO")},
			},
		},
		{
			name: "qemu-q35-two-nodes",
			comment: `QEMU 7.2, machine q35 with two NUMA nodes, Linux 6.1 of Debian: below a host
bridge of node 1 a network card and an xHCI controller with a disk, a sound
device and a serial adapter; three more controllers that belong to no node.
Recorded in the emulated machine by test/e2e/vm, without udev.
`,
			config: `
domain = "example.com"
[[resource]]
name = "nic"
match.pci.class = "02"
[[resource]]
name = "disk"
match = { usb = {}, glob = ["/dev/sd*", "/dev/sg*"], dangerous = true }
[[resource]]
name = "sound"
match = { usb = {}, glob = "/dev/snd/*" }
[[resource]]
name = "serial"
match = { usb = {}, glob = "/dev/ttyUSB*" }
`,
			devices: []Device{
				{Driver: "usb-storage", Bus: "usb3.0", Port: "1", Serial: "DISKALPHA"},
				{Driver: "usb-audio", Bus: "usb3.0", Port: "2", Serial: "SOUNDALPHA"},
				{Driver: "usb-serial", Bus: "usb3.0", Port: "3", Serial: "FTALPHA"},
			},
			want: map[string][]string{
				nic:                 {card},
				"example.com/disk":  {"usb:46f4:0001:DISKALPHA"},
				"example.com/sound": {"usb:46f4:0002:SOUNDALPHA"},
				serial:              {bySerial("FTALPHA")},
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m.Serve(t, c.config)
			for _, d := range c.devices {
				m.Plug(t, d)
			}
			for resource, ids := range c.want {
				m.Healthy(t, resource, ids...)
			}
			live := m.Run(t, "devices", "--allow=dangerous", "-o", "json")
			archive := m.Run(t, "snapshot", "-")
			if len(archive) > maxRecording {
				t.Errorf("the archive has %d bytes; want at most %d", len(archive), maxRecording)
			}
			if recorded := devicesOf(t, archive, c.config); recorded != live {
				t.Errorf("devices of the recorded machine:\n%s\nwant those of the machine itself:\n%s", recorded, live)
			}
			if dir := os.Getenv(recordEnv); dir != "" {
				_, files, _ := strings.Cut(archive, "\n-- ")
				text := c.comment + "\n-- " + files
				if err := os.WriteFile(filepath.Join(dir, c.name+".txtar"), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// devicesOf returns the output of generic-dp devices on this host for a recorded machine.
func devicesOf(t *testing.T, archive, config string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"machine.txtar": archive, "config.toml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(program(t), "devices", "--allow=dangerous", "-o", "json", "--config", dir+"/config.toml",
		"--sysfs", dir+"/machine.txtar", "--state-dir", dir+"/state")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("devices: %v: %s", err, stderr.String())
	}
	return stdout.String()
}
