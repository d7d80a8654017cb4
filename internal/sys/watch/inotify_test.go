package watch

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inotify opens an instance until the end of the test.
func inotify(t *testing.T, mask uint32) *instance {
	t.Helper()
	n, err := openInstance(mask)
	if err != nil {
		t.Skipf("no inotify here: %v", err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// step reads and interprets pending events.
type step struct {
	t *testing.T
	d *dirs
}

func (s step) expect(what string, changed, resync bool) {
	s.t.Helper()
	events, err := s.d.source.Next()
	must(s.t, err)
	if c := s.d.handle(events); c.empty() == changed || c.resync != resync {
		s.t.Errorf("%s: %+v; want changed %v, resync %v: %+v", what, c, changed, resync, events)
	}
}

func (s step) sync(what string, dirs []string, added bool) {
	s.t.Helper()
	a, err := s.d.sync(dirs)
	if err != nil || a != added {
		s.t.Errorf("%s: added %v, %v; want %v", what, a, err, added)
	}
}

func TestDirectoriesThatComeAndGo(t *testing.T) {
	t.Parallel()
	dev := t.TempDir()
	serial, byID := dev+"/serial", dev+"/serial/by-id"
	list := []string{dev, byID}
	n := inotify(t, Names|Attributes)
	s := step{t, &dirs{source: n}}

	s.sync("at first", list, true)
	s.sync("once more", list, false)
	must(t, os.Mkdir(serial, 0o755))
	s.expect("the directory above", true, false)
	s.sync("the directory above", list, false)
	must(t, os.WriteFile(serial+"/neighbour", nil, 0o644))
	s.expect("a neighbour", false, true)
	must(t, os.Mkdir(byID, 0o755))
	s.expect("the directory", false, true)
	s.sync("the directory", list, true)
	must(t, os.Symlink("x", byID+"/link"))
	s.expect("a link", true, false)

	must(t, os.RemoveAll(serial))
	s.expect("removed with its ancestors", true, true)
	s.sync("removed with its ancestors", list, false)
	must(t, os.MkdirAll(byID, 0o755))
	s.expect("created again", true, false)
	s.sync("created again", list, true)
	must(t, os.Symlink("x", byID+"/link"))
	s.expect("a link in the new one", true, false)

	must(t, os.Rename(byID, serial+"/old"))
	s.expect("moved away", true, true)
	s.sync("moved away", list, false)
	must(t, os.Remove(serial+"/old/link"))
	must(t, os.Mkdir(byID, 0o755))
	s.expect("replaced", false, true)
	s.sync("replaced", list, true)
	s.sync("no longer listed", list[:1], false)
	must(t, os.Symlink("x", byID+"/link"))
	must(t, os.Symlink("x", dev+"/link"))
	s.expect("after that", true, false)
}

// lateDir creates a directory just before its parent is watched.
type lateDir struct {
	*instance
	above, dir string
}

func (l lateDir) Add(dir string) (int, error) {
	if dir == l.above {
		if err := os.MkdirAll(l.dir, 0o755); err != nil {
			return 0, err
		}
	}
	return l.instance.Add(dir)
}

func TestDirectoryCreatedBeforeItsWatch(t *testing.T) {
	t.Parallel()
	dev := t.TempDir()
	n := inotify(t, Names|Attributes)
	s := step{t, &dirs{source: lateDir{n, dev, dev + "/dri/by-path"}}}
	s.sync("appears", []string{dev + "/dri/by-path"}, true)
}

// Writes to files in a watched directory cause no wakeup.
func TestWritesCauseNoEvents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := os.Create(dir + "/tty")
	must(t, err)
	defer f.Close()
	n := inotify(t, Names|Attributes)
	wd, err := n.Add(dir)
	must(t, err)
	for range 100 {
		_, err := f.WriteString("x")
		must(t, err)
	}
	must(t, os.Chmod(dir+"/tty", 0o600))
	must(t, os.Remove(dir+"/tty"))
	events, err := n.Next()
	must(t, err)
	if len(events) != 2 || events[0].Mask&unix.IN_ATTRIB == 0 || events[1].Mask&unix.IN_DELETE == 0 || events[0].WD != wd || events[0].Name != "tty" {
		t.Errorf("events: %+v; want a changed mode and a removal", events)
	}
}
