package model

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// resources are the configured ones, beside "always", which needs nothing of the host.
var resources = []string{"serial", "dual", "card", "widget"}

// configuration is a valid one.
type configuration struct {
	edit int // its number: each has another text
	of   map[string]settings
}

type settings struct {
	removed bool
	name    string
	count   int
	inject  string
	port    bool // USB devices are known by their port, whatever their serial
}

func newConfiguration() configuration {
	c := configuration{of: map[string]settings{}}
	for _, resource := range resources {
		c.of[resource] = settings{name: resource, count: 1, inject: "link"}
	}
	return c
}

// full is the name of a resource with its domain.
func (c configuration) full(resource string) string { return "example.com/" + c.of[resource].name }

func (c configuration) text() string {
	text := fmt.Sprintf("# %d\ndomain = \"example.com\"\n", c.edit)
	for _, resource := range resources {
		s := c.of[resource]
		if s.removed {
			continue
		}
		text += fmt.Sprintf("[[resource]]\nname = %q\ncount = %d\nforget_after = \"1m\"\n", s.name, s.count)
		switch resource {
		case "serial":
			text += `match = { usb.id = ["10c4:ea60", "1a86:7523", "0403:6001"], glob = "/dev/ttyUSB*" }` + "\n"
		case "dual":
			text += `match = { usb.id = "0403:6010", glob = "/dev/ttyUSB*" }` + "\n"
		case "card":
			text += `match.pci.id = "1ac1:089a"` + "\n"
		case "widget":
			text += `match.glob = "/dev/widget*"` + "\n"
		}
		if s.port {
			text += "identity = \"port\"\n"
		}
		switch s.inject {
		case "cdi":
			text += "container.cdi = true\n"
		case "node":
			text += "container.follow = false\n"
		}
	}
	return text + "[[resource]]\nname = \"always\"\nmatch.virtual = \"x\"\ncontainer.env.X = \"1\"\n"
}

// configure writes the configuration.
func (w *world) configure() error {
	text := w.config.text()
	if w.broken {
		text += "[[resource]\n"
	}
	temp := filepath.Join(w.dir, "config/.new")
	if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, filepath.Join(w.dir, "config/c.toml"))
}

func (w *world) edit(resource, key, value string) error {
	s := w.config.of[resource]
	switch key {
	case "count":
		s.count, _ = strconv.Atoi(value)
	case "inject":
		s.inject = value
	case "identity":
		s.port = value == "port"
	case "name":
		s.name = strings.TrimSuffix(resource+"-"+value, "-0")
	case "remove", "add":
		s.removed = key == "remove"
	}
	w.edits++
	w.config = configuration{w.edits, maps.Clone(w.config.of)}
	w.config.of[resource] = s
	w.broken, w.trial = false, trial{good: w.trial.good, unknown: w.trial.unknown, since: time.Now()}
	return w.configure()
}

// trial is how far the program has got with a configuration: one that it does not
// survive is not tried again while there is a good one.
type trial struct {
	good    *configuration // the last good one; nil: none
	unknown bool           // or another one
	since   time.Time      // when the present one began to be tried; zero: it is good
	revert  bool           // it was killed meanwhile
	unclear bool           // it may have been: what it serves is unknown until the next edit
}

// A configuration is good when it was served for ten seconds. Tests are not that exact.
const (
	surelyTried = 8 * time.Second
	surelyGood  = 15 * time.Second
)

// quiet notes what is good by now.
func (t *trial) quiet(served configuration) {
	if !t.since.IsZero() && time.Since(t.since) > surelyGood && !t.unclear {
		t.good, t.unknown, t.since = &served, false, time.Time{}
	}
}

// ended notes that the program has ended: when it is told to, what it serves is good.
func (t *trial) ended(served configuration, killed, sure bool) {
	tried := time.Since(t.since)
	switch {
	case t.since.IsZero():
	case !sure, killed && (t.unknown || tried > surelyTried):
		t.unclear, t.unknown = true, true
	case !killed:
		t.good, t.unknown, t.since = &served, false, time.Time{}
	case t.good != nil:
		t.revert = true
	}
}

// begins notes that the program starts with the configuration on disk, and returns which
// one it serves.
func (t *trial) begins(disk configuration, broken bool) configuration {
	served := disk
	if t.good != nil && (t.revert || broken) {
		served = *t.good
	}
	t.revert = false
	if t.since = time.Now(); t.good != nil && t.good.edit == served.edit {
		t.since = time.Time{}
	}
	return served
}
