package inventory

import (
	"slices"
	"testing"

	"github.com/generic-dp/generic-dp/sysfs"
)

// A device that replaced another one on a bus, and one that moved, are new.
func TestUpdateBus(t *testing.T) {
	t.Parallel()
	known := map[string]sysfs.Entry{}
	a, b := sysfs.Entry{Name: "a", Path: "devices/a", Ino: 1}, sysfs.Entry{Name: "b", Path: "devices/b", Ino: 2}
	anew, moved := a, b
	anew.Ino, moved.Path = 3, "devices/c"
	for i, step := range []struct {
		list []sysfs.Entry
		came []string
		went bool
	}{
		{[]sysfs.Entry{a, b}, []string{"devices/a", "devices/b"}, false},
		{[]sysfs.Entry{a, b}, nil, false},
		{[]sysfs.Entry{anew, b}, []string{"devices/a"}, false},
		{[]sysfs.Entry{anew, moved}, []string{"devices/c"}, false},
		{[]sysfs.Entry{anew}, nil, true},
		{[]sysfs.Entry{anew, b}, []string{"devices/b"}, false},
	} {
		if came, went := updateBus(known, step.list); !slices.Equal(came, step.came) || went != step.went {
			t.Errorf("step %d: %q came, others went: %t; want %q, %t", i, came, went, step.came, step.went)
		}
	}
}
