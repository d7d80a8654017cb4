// Package importer converts configurations of other device plugins to TOML.
//
// A conversion has three steps, each in separate files:
//
//   - find.go, value.go, decode.go: find the configurations in YAML: a file, a ConfigMap, the
//     arguments of a container, or the values of a chart.
//   - One file for each plugin, with a line in formats.
//   - resource.go, toml.go: check the resources and write them.
//
// The result offers the same devices under the same resource names, as far as our
// configuration can express them. Anything else is a comment in front of its resource and a
// warning, with place and reason.
package importer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Options of a conversion.
type Options struct {
	// Domain of resource names. It replaces the domain of the input and the plugin's
	// default.
	Domain string
}

// Result of a conversion.
type Result struct {
	// TOML is the configuration, with comments.
	TOML []byte
	// Warnings are the differences, one line each with file and place. The
	// comments of TOML have the same text.
	Warnings []string
	// Incomplete is set if a part of the input was not imported. The warnings say which.
	Incomplete bool
}

// format is a kind of configuration.
type format struct {
	plugin string // in messages
	// word is in lower case in every text with a configuration. It spares parsing the other
	// texts of a manifest, many of which are not YAML.
	word string
	// detect reports whether a value of the input is a configuration.
	detect func(v *value) bool
	// convert adds the resources of a configuration.
	convert func(c *conversion, s source)
}

// formats returns the formats. It is a function because the converters refer to it.
func formats() []format {
	return []format{
		{"generic-device-plugin", "groups", isSquat, (*conversion).squat},
		{"smarter-device-manager", "devicematch", isSmarter, (*conversion).smarter},
		{"sriov-network-device-plugin", "resourcelist", isSRIOV, (*conversion).sriov},
		{"k8s-rdma-shared-dev-plugin", "configlist", isRDMA, (*conversion).rdma},
		{"Akri", "udevrules", isAkri, (*conversion).akri},
	}
}

// Convert converts the configuration of another plugin; file names it in messages. The error is
// about an input without any device that can be imported.
func Convert(file string, data []byte, o Options) (*Result, error) {
	c := &conversion{
		file:   file,
		domain: o.Domain,
		flags:  map[string]string{},
	}
	if err := c.find(string(data)); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for _, s := range c.found {
		place := strings.TrimSpace(file + " " + s.path)
		c.comment(fmt.Sprintf("Imported from %s, a configuration of %s.", place, s.format.plugin))
		s.format.convert(c, s)
	}
	if len(c.resources) == 0 {
		reasons := append(c.warnings, file+": nothing in it can be imported")
		return nil, errors.New(strings.Join(reasons, "\n"))
	}
	if len(c.resources) > 1 {
		// Other plugins give such a device to both.
		c.comment("The first resource that selects a device gets it: generic-dp check reports on a node where that matters, and shared = true lets several have it.")
	}
	return &Result{
		TOML:       c.toml(),
		Warnings:   c.warnings,
		Incomplete: c.losses > 0,
	}, nil
}

// conversion is the state of one conversion.
type conversion struct {
	file   string // of the input, for messages
	domain string // of the options
	// found are the configurations in the input, and broken is the first text that might be one.
	found  []source
	broken error
	// flags are the flags of the plugin, by name.
	flags map[string]string

	warnings []string
	// losses counts the parts of the input that were not imported.
	losses int

	// comments are in front of all resources, and pending in front of the next resource.
	comments  []string
	pending   []string
	resources []*resource
}

// comment adds a comment in front of all resources, once.
func (c *conversion) comment(text string) { c.comments = addOnce(c.comments, text) }

// addOnce appends an element unless the list has it: several devices often have one difference.
func addOnce[T comparable](list []T, s T) []T {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
