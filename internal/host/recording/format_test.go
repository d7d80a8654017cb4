package recording

import (
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// An archive of any content reads as it was written.
func FuzzFormat(f *testing.F) {
	f.Add("sys/devices/a/serial", byte(file), "A1\n-- dev/x --\n")
	f.Add("dev/a -> b", byte(link), ` "c" = d`)
	f.Add("dev/a\n/\xff", byte(dir), "")
	f.Add("dev/pts", byte(mount), "")
	f.Add("sys/a = b", byte(file), "no newline")
	f.Add("dev/ x ", byte(file), "char 1:3\n")
	f.Add("dev/x --", byte(link), "--")
	f.Add("dev/ ->", byte(link), "0")
	f.Add("dev/x =", byte(link), "0")
	f.Fuzz(func(t *testing.T, name string, k byte, text string) {
		e := entry{name: name, kind: kind(k % 4), text: text}
		if e.kind == dir || e.kind == mount {
			e.text = ""
		}
		if e.checkAlone() != nil {
			return
		}
		want := []entry{e, {name: "sys/end", text: "1\n"}}
		if name == "sys/end" || strings.HasPrefix("sys/end", name+"/") || strings.HasPrefix(name, "sys/end/") {
			return
		}
		archive := txtar.Format(&txtar.Archive{Comment: []byte("Head.\n"), Files: []txtar.File{want[0].format(), want[1].format()}})
		got, err := parse(archive)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%+v is written as\n%s\nand read as %+v, %v", want, archive, got, err)
		}
		for l := range strings.Lines(string(archive)) {
			if !isPlain(strings.TrimSuffix(l, "\n")) {
				t.Errorf("not plain: %q", l)
			}
		}
	})
}
