package sysfs

// PortNumber returns the number of a port of bus/usb-serial at its adapter, from 0
// (port_number_show in drivers/usb/serial/bus.c), and -1 for other devices.
func (fs FS) PortNumber(dir string) (int, error) { return fs.number(dir, "port_number") }
