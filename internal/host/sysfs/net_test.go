package sysfs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNetInterface(t *testing.T) {
	t.Parallel()
	const card = "devices/pci0000:00/0000:03:00.0"
	sys := tree(t, map[string]string{
		card + "/driver":                         "-> ../../../bus/pci/drivers/kvaser_pci",
		card + "/net/can1/type":                  "280\n",
		card + "/net/can1/dev_port":              "0\n",
		card + "/net/can1/dev_id":                "0x1f\n",
		card + "/net/eth0/type":                  "1\n",
		card + "/net/eth0/dev_port":              "1\n",
		card + "/net/eth0/master":                "-> ../../../../virtual/net/br0",
		card + "/net/eth0/upper_br0":             "-> ../../../../virtual/net/br0",
		card + "/net/eth0/upper_eth0.7":          "-> ../../../../virtual/net/eth0.7",
		card + "/net/eth0/upper_eth0.5":          "-> ../../../../virtual/net/eth0.5",
		"devices/virtual/net/br0/type":           "1\n",
		"devices/virtual/net/br0/dev_port":       "3\n",
		"devices/virtual/net/br0/bridge/stp":     "0\n",
		"devices/virtual/net/bond0/type":         "1\n",
		"devices/virtual/net/bond0/bonding/mode": "1\n",
		"devices/virtual/net/gone/dev_port":      "3\n",
		"devices/virtual/net/odd/type":           "ether\n",
	})
	for dir, want := range map[string]NetInterface{
		card + "/net/can1":          {Type: 280, DevID: 31, Driver: "kvaser_pci"},
		card + "/net/eth0":          {Type: 1, DevPort: 1, DevID: -1, Driver: "kvaser_pci", Master: "br0", Uppers: []string{"eth0.5", "eth0.7"}},
		"devices/virtual/net/br0":   {Type: 1, DevPort: -1, DevID: -1, Bridge: true},
		"devices/virtual/net/bond0": {Type: 1, DevPort: -1, DevID: -1, Bond: true},
	} {
		got, err := sys.NetInterface(dir)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", dir, err, diff)
		}
	}
	if _, err := sys.NetInterface("devices/virtual/net/gone"); !Gone(err) {
		t.Errorf("without a type: %v; want gone", err)
	}
	if _, err := sys.NetInterface("devices/virtual/net/odd"); err == nil || Gone(err) {
		t.Errorf("type ether: %v; want an error", err)
	}
}
