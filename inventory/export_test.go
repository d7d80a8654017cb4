package inventory

import "github.com/generic-dp/generic-dp/device"

// GHWPCI is for tests that compare ghw's part with the whole.
var GHWPCI = ghwPCI

// HangUSB makes the USB device of a directory answer when until is closed.
func (s *Scanner) HangUSB(dir string, until <-chan struct{}) {
	read := s.usb.read
	s.usb.read = func(d string) (device.USB, error) {
		if d == dir {
			<-until
		}
		return read(d)
	}
}
