package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/internal/tools/cli"
	"github.com/generic-dp/generic-dp/internal/tools/plugin"
)

// An input above the limit is an error. A part of it would be converted without a message about the
// rest.
func TestInputLimit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "large.yaml")
	place(t, file, "")
	for _, c := range []struct {
		size      int64
		isTooLong bool
	}{
		{cli.MaxInput, false},
		{cli.MaxInput + 1, true},
	} {
		err := os.Truncate(file, c.size) // a sparse file
		if err != nil {
			t.Fatal(err)
		}
		_, text, err := cli.ReadInput(file)
		if !c.isTooLong {
			if err != nil || int64(len(text)) != c.size {
				t.Errorf("%d bytes: read %d, %v", c.size, len(text), err)
			}
			continue
		}
		var out, stderr strings.Builder
		code := plugin.Run(t.Context(), "test", []string{"import", file}, &out, &stderr)
		want := "error: read " + file + ": the input is larger than 16 MiB\n"
		if code != 1 || stderr.String() != want || out.Len() > 0 {
			t.Errorf("import: status %d, %q, want %q\n%s", code, stderr.String(), want, out.String())
		}
	}
}
