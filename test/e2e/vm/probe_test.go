package vm

import (
	"github.com/generic-dp/generic-dp/test/e2e/vm/wire"
	"testing"
	"time"
)

func TestProbe(t *testing.T) {
	m := Boot(t, "-device", "qemu-xhci,id=usb0,bus=pcie.0,addr=0x4")
	m.call(t, "Load", "usb", &wire.None{})
	m.call(t, "Load", "storage", &wire.None{})
	m.call(t, "Load", "net", &wire.None{})
	m.call(t, "Load", "sound", &wire.None{})
	m.call(t, "Serve", wire.Serve{Config: "domain=\"example.com\"\n[[resource]]\nname=\"serial\"\nmatch.glob=\"/dev/ttyUSB*\"\n"}, &wire.None{})
	s := time.Now()
	m.Plug(t, Device{Driver: "usb-serial", Bus: "usb0.0", Port: "1", Serial: "A1"})
	var got wire.Got
	err := m.try(time.Minute, "Wait", wire.Want{Resource: "example.com/serial", Healthy: []string{"usb:0403:6001:A1:if00:ttyUSB"}, Within: 10 * time.Second}, &got)
	t.Log(time.Since(s), err, got)
	var log string
	m.call(t, "Log", wire.None{}, &log)
	t.Log(log)
	var u wire.Usage
	m.call(t, "Usage", wire.None{}, &u)
	t.Logf("%+v", u)
	m.call(t, "Record", "hello\n", &log)
	t.Log(len(log))
}
