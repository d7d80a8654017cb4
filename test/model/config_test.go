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

// resources are the configured resources, besides "always", whose device is virtual.
var resources = []string{"serial", "dual", "card", "widget"}

// configuration is a valid configuration.
type configuration struct {
	edit int                 // number of the edit: no two texts are equal
	of   map[string]settings // by resource
}

type settings struct {
	removed bool
	name    string
	count   int
	inject  string
	port    bool // identity = "port"
}

func newConfiguration() configuration {
	c := configuration{of: map[string]settings{}}
	for _, resource := range resources {
		c.of[resource] = settings{name: resource, count: 1, inject: "link"}
	}
	return c
}

// fullName is the name of a resource with its domain.
func (c configuration) fullName(resource string) string { return "example.com/" + c.of[resource].name }

func (c configuration) text() string {
	text := fmt.Sprintf("# %d\ndomain = \"example.com\"\n", c.edit)
	for _, resource := range resources {
		s := c.of[resource]
		if s.removed {
			continue
		}
		text += fmt.Sprintf("[[resource]]\nname = %q\ncount = %d\n", s.name, s.count)
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
		if s.inject == "cdi" {
			text += "container.cdi = true\n"
		}
	}
	return text + "[[resource]]\nname = \"always\"\nmatch.virtual = \"x\"\ncontainer.env.X = \"1\"\n"
}

// configure writes the configuration.
func (w *world) configure() error {
	text := w.config.text()
	if w.configBroken {
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
	w.configBroken, w.trial = false, trial{good: w.trial.good, goodUnknown: w.trial.goodUnknown, since: time.Now()}
	return w.configure()
}

// trial is the model of the program's trial of a configuration: after three kills during the
// trial, the last good configuration is served, if there is one.
type trial struct {
	good          *configuration // the last good one; nil: none
	goodUnknown   bool           // another one may be the last good one
	since         time.Time      // start of the trial; zero: the served configuration is good
	kills         int            // how often the program was killed during the trial
	servedUnknown bool           // until the next edit: it may have been
}

// A configuration is good after ten seconds of service, which the model knows to some seconds.
const (
	surelyTried = 8 * time.Second
	surelyGood  = 15 * time.Second
)

// maxTries is how often the program tries a configuration that kills it.
const maxTries = 3

// settled records that the served configuration is good after surelyGood.
func (t *trial) settled(served configuration) {
	if !t.since.IsZero() && time.Since(t.since) > surelyGood && !t.servedUnknown {
		t.good, t.goodUnknown, t.since = &served, false, time.Time{}
	}
}

// programEnded records the end of the program: after SIGTERM, the served configuration is
// good. Not sure: the program may not have read or saved the last changes.
func (t *trial) programEnded(served configuration, killed, sure bool) {
	tried := time.Since(t.since)
	switch {
	case t.since.IsZero():
	case !sure, killed && (t.goodUnknown || tried > surelyTried):
		t.servedUnknown, t.goodUnknown = true, true
	case !killed:
		t.good, t.goodUnknown, t.since = &served, false, time.Time{}
	default:
		t.kills++
	}
}

// without returns the configuration without the resources whose names next does not have.
func (c configuration) without(next configuration) configuration {
	reduced := configuration{c.edit, maps.Clone(c.of)}
	for resource, s := range c.of {
		isKept := !next.of[resource].removed && next.of[resource].name == s.name
		if !isKept {
			s.removed = true
			reduced.of[resource] = s
		}
	}
	return reduced
}

// programStarts records a start with the configuration on disk, and returns the served one.
func (t *trial) programStarts(disk configuration, broken bool) configuration {
	served := disk
	if broken || t.kills >= maxTries {
		served = *t.good
		if t.kills > 0 {
			served = served.without(disk)
		}
		t.kills = 0
	}
	t.since = time.Now()
	if t.good != nil && t.good.edit == served.edit {
		t.since = time.Time{}
	}
	return served
}
