package inventory_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/host/recording"
	"github.com/generic-dp/generic-dp/internal/testing/sysfstest"
)

// The IDs of nodes by path, with the NUMA node of each node whose hardware has none.
func TestIdentities(t *testing.T) {
	t.Parallel()
	for machine, want := range map[string]string{
		"nvme-multipath": `
/dev/ng0n1 nvme:uuid.6f9a2c1e-58d0-4b7e-9a43-0d2b8c6e1f70:ng
/dev/ng1n1 0000:01:00.0:ngn1
/dev/ng2n1 nvme:uuid.c3b0de55-7a3d-4f0e-8a57-b4b1d7f6a2c9:ng
/dev/nvme-fabrics nvme-fabrics
/dev/nvme0 0000:02:00.0:nvme
/dev/nvme0n1 nvme:uuid.6f9a2c1e-58d0-4b7e-9a43-0d2b8c6e1f70:nvme
/dev/nvme0n1p1 nvme:uuid.6f9a2c1e-58d0-4b7e-9a43-0d2b8c6e1f70:nvmep1
/dev/nvme1 0000:01:00.0:nvme
/dev/nvme1n1 0000:01:00.0:nvmen1
/dev/nvme2 0000:81:00.0:nvme
/dev/nvme2n1 nvme:uuid.c3b0de55-7a3d-4f0e-8a57-b4b1d7f6a2c9:nvme
/dev/nvme3 nvme3`,
		"laptop-sensors": `
/dev/bus/usb/001/001 usb:1d6b:0002:port:0000:03:00.3:0:bus
/dev/bus/usb/001/002 usb:04f2:b6c0:port:0000:03:00.3:1:bus
/dev/bus/usb/001/003 usb:1908:2310:port:0000:03:00.3:2:bus
/dev/bus/usb/001/004 usb:18d1:4ee3:8A2X0KJ3T:bus
/dev/i2c-1 platform:AMDI0010:00:i2c
/dev/iio:device0 platform:AMDI0010:00:iio:SMO8A90-00.lis2de12
/dev/iio:device1 platform:AMDI0010:00:iio:SMO9210-00.lsm6dsm
/dev/iio:device2 platform:AMDI0010:00:iio:STM0001-00.accel_3d
/dev/iio:device3 platform:AMDI0010:00:iio:STM0001-00.gyro_3d
/dev/ttyS0 platform:PNP0501:00:ttyS0
/dev/video0 usb:04f2:b6c0:port:0000:03:00.3:1:if00:video
/dev/video1 usb:04f2:b6c0:port:0000:03:00.3:1:if00:video.1
/dev/video2 usb:04f2:b6c0:port:0000:03:00.3:1:if02:video
/dev/video3 usb:04f2:b6c0:port:0000:03:00.3:1:if02:video.1
/dev/video4 usb:1908:2310:port:0000:03:00.3:2:if00:video
/dev/video5 usb:1908:2310:port:0000:03:00.3:2:if00:video.1
usb0 usb:18d1:4ee3:8A2X0KJ3T:if00:net`,
		"imx-board": `
/dev/bus/usb/001/001 usb:1d6b:0002:port:32e40000.usb:0:bus
/dev/bus/usb/001/002 usb:1a86:7523:port:32e40000.usb:1:bus
/dev/bus/usb/002/001 usb:1d6b:0002:port:a600000.usb:0:bus
/dev/bus/usb/002/002 usb:0529:0001:port:a600000.usb:1:bus
/dev/gpiochip0 platform:30200000.gpio:gpiochip
/dev/gpiochip1 platform:30210000.gpio:gpiochip
/dev/i2c-2 platform:30a20000.i2c:i2c
/dev/i2c-3 platform:30a30000.i2c:i2c
/dev/i2c-4 platform:30a20000.i2c:i2c:mux-70.i2c-0
/dev/i2c-5 platform:30a20000.i2c:i2c:mux-70.i2c-1
/dev/ttyUSB0 usb:1a86:7523:port:32e40000.usb:1:if00:ttyUSB`,
		"firmware-buses": `
/dev/dasda platform:0.0.1235:dasd
/dev/dasda1 platform:0.0.1235:dasd1
/dev/dasdb platform:0.0.1234:dasd
/dev/dasdb1 platform:0.0.1234:dasd1
/dev/sda platform:30000002:sd
/dev/sdb platform:f8b3781a-1e82-4818-a1c3-63d806ec15bb:sd
/dev/sg0 platform:30000002:sg
/dev/sg1 platform:f8b3781a-1e82-4818-a1c3-63d806ec15bb:sg
/dev/vda platform:0.0.0001:vd
/dev/xvda platform:vbd-51712:xvd`,
		"pmem-server": `
/dev/dax0.0 dax0.0, numa [0]
/dev/dax1.0 dax1.0, numa [1]
/dev/pmem0 pmem0, numa [0]
/dev/pmem1 pmem1, numa [1]`,
	} {
		t.Run(machine, func(t *testing.T) {
			t.Parallel()
			var got strings.Builder
			snap := scan(t, sysfstest.Load(t, "../../../testdata/machines/"+machine+".txtar"))
			for _, n := range append(snap.Nodes, snap.Nets...) {
				form := device.Forms(nil).Of(n.Hardware)
				fmt.Fprintf(&got, "\n%s %s", n.Path, device.NodeID(n, form))
				if len(n.NUMA) > 0 {
					fmt.Fprintf(&got, ", numa %d", n.NUMA)
				}
			}
			equal(t, "result", want, got.String())
		})
	}
}

// In another boot the kernel numbers everything otherwise.
func TestIdentitiesOverABoot(t *testing.T) {
	t.Parallel()
	for name, numbers := range map[string]*strings.Replacer{
		"nvme-multipath": strings.NewReplacer("nvme0", "nvme2", "nvme1", "nvme0", "nvme2", "nvme1", "ng0", "ng2", "ng1", "ng0", "ng2", "ng1"),
		"laptop-sensors": strings.NewReplacer("i2c-1", "i2c-4", "device0", "device3", "device1", "device2", "device2", "device0", "device3", "device1",
			"200073.1.auto", "200073.5.auto", "200076.2.auto", "200076.4.auto", "usb0", "usb1"),
		"imx-board": strings.NewReplacer("i2c-2", "i2c-5", "i2c-3", "i2c-2", "i2c-4", "i2c-3", "i2c-5", "i2c-4", "ci_hdrc.0", "ci_hdrc.1",
			"hcd.1.auto", "hcd.3.auto", "gpiochip0", "gpiochip1", "gpiochip1", "gpiochip0"),
		"mlx5-subfunctions": strings.NewReplacer("sf.4", "sf.2", "sf.5", "sf.4", "sf.6", "sf.3",
			"uverbs2", "uverbs4", "uverbs3", "uverbs2", "uverbs4", "uverbs3", "mlx5_2", "mlx5_4"),
		"firmware-buses": strings.NewReplacer("dasda", "dasdb", "dasdb", "dasda", "sda", "sdb", "sdb", "sda", "host1", "host2", "host2", "host1",
			"target1", "target2", "target2", "target1", "/1:0:0:0", "/2:0:0:0", "/2:0:0:0", "/1:0:0:0"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := "../../../testdata/machines/" + name + ".txtar"
			archive, err := os.ReadFile(file)
			must(t, err)
			next := filepath.Join(t.TempDir(), "next.txtar")
			must(t, os.WriteFile(next, []byte(numbers.Replace(string(archive))), 0o644))
			ids := func(tree recording.Tree) (ids []string) {
				snap := scan(t, tree)
				noProblems(t, snap)
				for _, n := range append(snap.Nodes, snap.Nets...) {
					// The controller of a remote disk has no identity.
					if id := device.NodeID(n, device.Forms(nil).Of(n.Hardware)); id != "nvme3" {
						ids = append(ids, id)
					}
				}
				slices.Sort(ids)
				return ids
			}
			equal(t, "next boot", ids(sysfstest.Load(t, file)), ids(sysfstest.Load(t, next)))
		})
	}
}
