package sysfs

// PortNumber returns which port of its adapter a port of bus/usb-serial is,
// counted from 0 (port_number_show in drivers/usb/serial/bus.c), and -1 for
// everything else.
func (fs FS) PortNumber(dir string) (int, error) { return fs.number(dir, "port_number") }
