package sysfs

// VideoIndex returns which node of its device a node of class/video4linux is,
// counted from 0 (index_show in drivers/media/v4l2-core/v4l2-dev.c), and -1
// for everything else.
func (fs FS) VideoIndex(dir string) (int, error) { return fs.number(dir, "index") }
