package dra_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/kubelet/dra"
)

// consumed is the result of an allocation that takes a part of a bandwidth.
func consumed(request, name, amount string) string {
	return fmt.Sprintf(`{"request":%q,"driver":%q,"pool":"n1/generic-dp","device":%q,"shareID":"s-%s","consumedCapacity":{"bandwidth":%q,"slots":"1"}}`,
		request, dra.Driver, name, request, amount)
}

// card is a device that eight claims share, with a bandwidth.
func card(bandwidth string) dra.Device {
	d := stick("card")
	d.Slots = 8
	d.Capacity = map[string]device.Capacity{"bandwidth": {Value: bandwidth}}
	d.Attributes = map[string]device.Typed{}
	return d
}

// prepare allocates amounts of the card to a claim, one for each request, and prepares it. It
// returns the environment of the first request.
func (b *bed) prepareShares(name string, amounts ...string) (env []string, err error) {
	b.Helper()
	var all []string
	for i, amount := range amounts {
		all = append(all, consumed(fmt.Sprint("r", i), "card", amount))
	}
	b.api.set(claim(name), results(all...))
	devices, err := b.kubelet.PrepareClaim(b.Context(), dra.Driver, claim(name))
	if err != nil {
		return nil, err
	}
	ids := devices[0].GetCdiDeviceIds()
	edits := b.claims.Edits(ids[len(ids)-1])
	return edits.Env, nil
}

// Claims that share a device never hold more of a capacity than it has, whatever the API server
// says: it forgets a claim whose pod was deleted with --force while its containers run.
func TestClaimsShareACapacity(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.host.list()
	b.sticks.set(card("10G"))
	_, stop := b.serveRegistered()

	env, err := b.prepareShares("a", "6G")
	must(t, err)
	if got := strings.Join(env, " "); !strings.Contains(got, "BANDWIDTH=6000000000") {
		t.Errorf("environment %q, want BANDWIDTH=6000000000", got)
	}
	if _, err := b.prepareShares("b", "1.5G", "2500M"); err != nil {
		t.Errorf("the rest of the capacity: %v", err)
	}

	refused := func(name, want string, amounts ...string) {
		t.Helper()
		_, err := b.prepareShares(name, amounts...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("claim %s: %v, want %q", name, err, want)
		}
	}
	refused("c", "held by claim lab/a", "1m")
	refused("c", `needs more than 10G bandwidth of device "example.com/zigbee=card"`, "6G", "6G")
	refused("c", `"1x" is not a quantity`, "1x")

	// The next instance reads what the claims hold from their files.
	b.serve()
	b.untilDrivers(2)
	stop()
	b.untilDrivers(1)
	refused("c", "held by claim lab/a", "1m")
	b.unprepare(claim("b"))
	if _, err := b.prepareShares("c", "4G"); err != nil {
		t.Errorf("after a release: %v", err)
	}

	// A claim keeps what it has if the capacity is lowered, and others get nothing.
	b.sticks.set(card("5G"))
	for name, amount := range map[string]string{"a": "6G", "c": "4G"} {
		if _, err := b.prepareShares(name, amount); err != nil {
			t.Errorf("prepared claim %s after the capacity was lowered: %v", name, err)
		}
	}
	refused("a", "more than 5G", "7G")
	refused("d", "held by claim lab/a", "1m")
}

// A claim keeps its device when the device is no longer shared, although another claim has it too: its
// containers may run.
func TestSharedClaimOutlivesTheSharing(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.answer = 3 * time.Second
	b.host.list()
	b.sticks.set(card("10G"))
	b.serveRegistered()
	for _, name := range []string{"a", "b"} {
		if _, err := b.prepareShares(name, "2G"); err != nil {
			t.Fatal(err)
		}
	}
	whole := stick("card")
	whole.Attributes = card("1").Attributes
	b.sticks.set(whole)
	if _, err := b.prepareShares("a", "2G"); err != nil {
		t.Error(err)
	}
}
