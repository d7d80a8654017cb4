package ledger

import "testing"

func renamed(id, former string) Resource {
	d := dev(id, "a")
	d.Former = former
	return res("r", d)
}

func TestHeldDeviceKeepsTheIDOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	before := newMachine(t).at(0, res("r", dev("i2c-2", "a"))).state.Remember()
	h := newMachine(t, before...)
	h.silent = true
	h.at(0, renamed("i2c", "i2c-2")).shows(list{"r": {"i2c-2": ok}}).asks(true)
	h.silent, h.held = false, map[string]string{"i2c-2": "r"}
	h.at(m, renamed("i2c", "i2c-2")).shows(list{"r": {"i2c-2": ok}}).asks(true)

	// In the next boot another device has the number, and a pod still the ID.
	held := h.held
	h = newMachine(t, h.state.Remember()...)
	h.held = held
	both := renamed("i2c", "i2c-3")
	other := dev("other", "a")
	other.Former = "i2c-2"
	both.Offers = append(both.Offers, other)
	h.at(0, both).shows(list{"r": {"i2c-2": ok, "other": ok}})
	h.failing = map[string]string{"i2c": "silent"}
	h.at(s, both).shows(list{"r": {"i2c-2": "silent", "other": ok}})

	// Once it is free it has the ID of this version, after the other has left the list.
	h.failing, h.held = nil, nil
	free := list{"r": {"i2c-2": "listed anew as i2c", "other": ok}}
	h.at(m, both).shows(free).wakes(2 * m)
	h.held = held // an Allocate call in flight
	h.at(m+s, both).shows(list{"r": {"i2c-2": ok, "other": ok}})
	h.held = nil
	h.at(2*m, both).shows(free)
	h.at(3*m, both).shows(list{"r": {"i2c": ok, "other": ok}})
	h.at(4*m, both).asks(false).wakes(-1)
}
