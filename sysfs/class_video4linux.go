package sysfs

// VideoIndex returns the number of a class/video4linux node within its device, from 0
// (index_show in drivers/media/v4l2-core/v4l2-dev.c), and -1 for other nodes.
func (fs FS) VideoIndex(dir string) (int, error) { return fs.number(dir, "index") }
