package sysfs

import "path"

// ATAPort returns the number of an ATA port at its controller, from 1
// (drivers/ata/libata-transport.c); dir is that of the port, ".../ata4", whose own
// number counts over the machine. It is -1 if unknown.
func (fs FS) ATAPort(dir string) (int, error) {
	return fs.number(dir+"/ata_port/"+path.Base(dir), "port_no")
}
