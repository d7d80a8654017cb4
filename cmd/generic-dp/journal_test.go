package main

import (
	"log/slog"
	"strings"
	"testing"
)

// Lines for the journal have priorities, and no time of their own.
func TestJournal(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := slog.New(newJournal(&out, slog.LevelInfo)).With("resource", "example.com/a")
	log.Debug("hidden")
	log.Info("one")
	log.WithGroup("g").Warn("two", "level", 3)
	log.Error("three")
	want := `<6>msg=one resource=example.com/a
<4>msg=two resource=example.com/a g.level=3
<3>msg=three resource=example.com/a
`
	if got := out.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
