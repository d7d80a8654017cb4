package dra

import (
	"bytes"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/kubeapi"
	"github.com/generic-dp/generic-dp/internal/testing/kubeapitest"
)

// refusing refuses devices whose attribute "product" is one of bad, as the API server does.
func refusing(bad ...string) func(o kubeapitest.Object) []kubeapi.Cause {
	return func(o kubeapitest.Object) (causes []kubeapi.Cause) {
		spec, _ := o["spec"].(kubeapitest.Object)
		list, _ := spec["devices"].([]any)
		for i, d := range list {
			attributes, _ := d.(kubeapitest.Object)["attributes"].(kubeapitest.Object)
			product, _ := attributes["product"].(kubeapitest.Object)
			for _, b := range bad {
				if product["string"] == b {
					causes = append(causes, kubeapi.Cause{
						Field:   "spec.devices[" + strconv.Itoa(i) + "].attributes[product].string",
						Message: "Invalid value: no " + b,
					})
				}
			}
		}
		return causes
	}
}

func withProduct(product string, d []Device) []Device {
	for i := range d {
		d[i].Attributes = map[string]device.Typed{"product": {Text: product}}
	}
	return d
}

func refusals(s *kubeapitest.Server) (n int) {
	for _, r := range s.Requests() {
		if r.Code == http.StatusUnprocessableEntity {
			n++
		}
	}
	return n
}

func watches(s *kubeapitest.Server) (n int) {
	for _, r := range s.Requests() {
		if strings.Contains(r.Query, "watch=1") {
			n++
		}
	}
	return n
}

func TestRefusedDeviceIsLeftOut(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.Validate(refusing("bad", "worse"))
	p := start(t, s)
	p.stop()
	var log bytes.Buffer
	p.status.log = slog.New(slog.NewTextHandler(&log, nil))
	p.Log = p.status.log
	p.run()
	const reason = "the API server refuses the device: attributes[product].string: Invalid value: no bad"
	const worse = "the API server refuses the device: attributes[product].string: Invalid value: no worse"
	problems := func(b, c string) func([]slice) bool {
		return func([]slice) bool {
			return p.Problem("a") == "" && p.Problem("b") == b && p.Problem("c") == c && p.Problem("d") == ""
		}
	}
	all := append(devices("a", "d"), append(withProduct("bad", devices("b")), withProduct("worse", devices("c"))...)...)
	p.Set(all)
	p.until("published without b and c", has("a", "d"))
	p.until("reported", problems(reason, worse))
	if got := refusals(s); got != 1 {
		t.Errorf("%d refused writes, want 1", got)
	}

	// Neither other devices nor its state make it another device.
	all[2].State = Unhealthy
	p.Set(append(all, devices("0")...))
	p.until("published with 0", has("0", "a", "d"))
	if got := refusals(s); got != 1 {
		t.Errorf("%d refused writes after a change of others, want 1", got)
	}

	all[2].Attributes = map[string]device.Typed{"product": {Text: "good"}}
	p.Set(all)
	p.until("published with b", has("a", "b", "d"))
	p.until("reported", problems("", worse))

	// The watch ends when the server is updated. One that still refuses c is not logged.
	before := refusals(s)
	s.EndWatches()
	p.until("tried again", func([]slice) bool { return refusals(s) > before })
	s.Validate(nil)
	s.EndWatches()
	p.until("published with c", has("a", "b", "c", "d"))
	p.until("healed", problems("", ""))
	p.stop()
	// The agent logs problems, once.
	if got := strings.Count(log.String(), "level=WARN"); got != 0 {
		t.Errorf("%d warnings, want none:\n%s", got, &log)
	}
}

// Without a refused device that it names, an answer is as before.
func TestRefusalWithoutADevice(t *testing.T) {
	t.Parallel()
	for _, field := range []string{"", "spec.devices", "spec.devices[7].name", "spec.devices[-1].name", "spec.pool.name"} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.Validate(func(kubeapitest.Object) []kubeapi.Cause {
				return []kubeapi.Cause{{Field: field, Message: "Invalid value"}}
			})
			p := start(t, s)
			p.Set(devices("a"))
			p.until("problem", func([]slice) bool { return strings.Contains(p.Problem(""), "422 Invalid") })
			s.Validate(nil)
			p.until("published", has("a"))
		})
	}
}

// A selector on an attribute that one device lacks would be an error for every pod.
func TestMistypedDeviceIsLeftOut(t *testing.T) {
	t.Parallel()
	p := start(t, newServer(t))
	all := devices("a", "b")
	all[1].Mistyped = true
	all[1].State = Unhealthy
	p.Set(all)
	p.until("published", has("a"))
	all[1].Mistyped = false
	all[1].State = Healthy
	p.Set(all)
	p.until("published", has("a", "b"))
}
