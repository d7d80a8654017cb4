package inventory

import "github.com/generic-dp/generic-dp/internal/device"

// HangUSB blocks the reads of the USB device of a directory until until is closed.
func (s *Scanner) HangUSB(dir string, until <-chan struct{}) {
	read := s.usb.read
	s.usb.read = func(d string) (device.USB, error) {
		if d == dir {
			<-until
		}
		return read(d)
	}
}
