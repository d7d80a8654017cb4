package dra

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// The type of the parameters. Another version gets another name, and both are read.
const (
	parametersVersion = Driver + "/v1alpha1"
	parametersKind    = "ContainerParameters"
)

// parameters say how the containers of a claim get its devices. They choose among what the configuration
// gives, and never add to it.
type parameters struct {
	device.Placement
	// Env has the new names of variables of the configuration, by their configured names.
	Env map[string]string
}

// Limits of parameters, whose size the API server limits to 10 KiB (OpaqueParametersMaxLength in
// k8s.io/api/resource/v1).
const (
	maxPath    = 255
	maxEnv     = 32
	maxEnvName = 128
)

// parseParameters reads the parameters of one configuration. It returns parameters or an error, never
// both. readerOf is Options.EnvReader.
func parseParameters(text []byte, readerOf func(name string) string) (parameters, error) {
	var p parameters
	var version, kind string
	fields := map[string]any{
		"apiVersion":  &version,
		"kind":        &kind,
		"path":        &p.Path,
		"permissions": &p.Permissions,
		"env":         &p.Env,
	}
	values, err := object(text)
	if err != nil {
		return parameters{}, err
	}
	// The order makes the error stable. Names are compared exactly, unlike in package json.
	for _, name := range slices.Sorted(maps.Keys(values)) {
		field := fields[name]
		if field == nil {
			return parameters{}, fmt.Errorf("unknown field %q: want apiVersion, kind, path, permissions or env", name)
		}
		if err := json.Unmarshal(values[name], field); err != nil {
			return parameters{}, fmt.Errorf("%s: want %s", name, wantOf(name))
		}
	}
	if version != parametersVersion || kind != parametersKind {
		return parameters{}, fmt.Errorf("apiVersion %q and kind %q: want %q and %q", version, kind, parametersVersion, parametersKind)
	}
	if err := p.check(values, readerOf); err != nil {
		return parameters{}, err
	}
	return p, nil
}

// wantOf describes the value of a field.
func wantOf(field string) string {
	if field == "env" {
		return "an object of strings"
	}
	return "a string"
}

// object decodes a JSON object into its fields.
func object(text []byte) (map[string]json.RawMessage, error) {
	var values map[string]json.RawMessage
	isObject := bytes.HasPrefix(bytes.TrimSpace(text), []byte("{"))
	if !isObject || json.Unmarshal(text, &values) != nil {
		return nil, errors.New("want an object")
	}
	return values, nil
}

// check returns which value is invalid. values has the fields that are set.
func (p *parameters) check(values map[string]json.RawMessage, readerOf func(name string) string) error {
	if values["path"] != nil {
		if err := checkPath(p.Path); err != nil {
			return fmt.Errorf("path %q: %w", p.Path, err)
		}
	}
	if values["permissions"] != nil && !isPermissions(p.Permissions) {
		return fmt.Errorf(`permissions %q: want some of "r", "w" and "m", each once`, p.Permissions)
	}
	if len(p.Env) > maxEnv {
		return fmt.Errorf("env has %d names: at most %d are allowed", len(p.Env), maxEnv)
	}
	// The order makes the error stable.
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if err := checkEnvName(p.Env[name], readerOf); err != nil {
			return fmt.Errorf("env.%s: %q %w", name, p.Env[name], err)
		}
	}
	return nil
}

// isPermissions reports whether a text has at least one permission, and none twice.
func isPermissions(text string) bool {
	seen := ""
	for _, c := range text {
		if !strings.ContainsRune("rwm", c) || strings.ContainsRune(seen, c) {
			return false
		}
		seen += string(c)
	}
	return seen != ""
}

// takenPaths are nodes and directories below /dev that a container always has: runtimes make them
// (config-linux.md of the OCI runtime specification: default devices and symbolic links) or mount
// them.
var takenPaths = []string{
	"/dev/console",
	"/dev/core",
	"/dev/fd",
	"/dev/full",
	"/dev/mqueue",
	"/dev/null",
	"/dev/ptmx",
	"/dev/pts",
	"/dev/random",
	"/dev/shm",
	"/dev/stderr",
	"/dev/stdin",
	"/dev/stdout",
	"/dev/termination-log",
	"/dev/tty",
	"/dev/urandom",
	"/dev/zero",
}

// checkPath returns why a claim may not place nodes at a path. A path of the configuration may be
// anywhere. A claim may come from somebody who does not own the pod, and must not hide its files.
func checkPath(text string) error {
	clean := strings.TrimSuffix(text, "/")
	isBelowDev := strings.HasPrefix(clean, "/dev/")
	switch {
	case len(text) > maxPath:
		return fmt.Errorf("is longer than %d bytes", maxPath)
	case !isBelowDev || path.Clean(clean) != clean:
		return errors.New(`want a clean path below /dev, such as "/dev/modem"`)
	case !isPlain(text):
		return errors.New(`want letters, digits and "/._:+-"`)
	}
	for _, taken := range takenPaths {
		if clean == taken || strings.HasPrefix(clean, taken+"/") {
			return fmt.Errorf("%s belongs to the container itself", taken)
		}
	}
	return nil
}

// isPlain reports whether a path has no character with a meaning for programs or terminals.
func isPlain(text string) bool {
	return strings.Trim(strings.ToLower(text), lower+"/._:+-") == ""
}

// checkEnvName returns why a variable of a container may not have a name.
func checkEnvName(name string, readerOf func(name string) string) error {
	isName := strings.Trim(strings.ToLower(name), lower+"_") == ""
	startsWithDigit := name != "" && '0' <= name[0] && name[0] <= '9'
	if name == "" || !isName || startsWithDigit {
		return errors.New(`can't be the name of a variable: want letters, digits and "_"`)
	}
	if len(name) > maxEnvName {
		return fmt.Errorf("is longer than %d bytes", maxEnvName)
	}
	// No privilege of the program is a privilege of the author of a claim.
	if by := readerOf(name); by != "" {
		return fmt.Errorf("can't be the name of a variable: %s reads it", by)
	}
	return nil
}

// merge adds parameters that count less. It is an error if both set a field with different values and
// come from the same source.
func (p *parameters) merge(other parameters, isSameSource bool) error {
	set := func(field string, have *string, add string) error {
		if *have != "" && add != "" && *have != add && isSameSource {
			return fmt.Errorf("%s is %q and %q", field, *have, add)
		}
		if *have == "" {
			*have = add
		}
		return nil
	}
	if err := set("path", &p.Path, other.Path); err != nil {
		return err
	}
	if err := set("permissions", &p.Permissions, other.Permissions); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(other.Env)) {
		renamed := p.Env[name]
		if err := set("env."+name, &renamed, other.Env[name]); err != nil {
			return err
		}
		if p.Env == nil {
			p.Env = map[string]string{}
		}
		p.Env[name] = renamed
	}
	return nil
}

// deviceConfig is the configuration of devices for one driver.
type deviceConfig struct {
	// Source is fromClass or "FromClaim".
	Source string `json:"source"`
	// Requests are the requests that it is for: all, if there are none.
	Requests limited[string] `json:"requests"`
	Opaque   *struct {
		Driver     string          `json:"driver"`
		Parameters json.RawMessage `json:"parameters"`
	} `json:"opaque"`
}

// fromClass is the source of the configuration of a DeviceClass. An administrator writes classes, so that
// it counts more than the claim.
const fromClass = "FromClass"

// appliesTo reports whether the configuration is for a request, or for the subrequest of one.
func (c *deviceConfig) appliesTo(request string) bool {
	if len(c.Requests) == 0 {
		return true
	}
	return slices.Contains(c.Requests, request) || slices.Contains(c.Requests, baseRequest(request))
}

// parametersOf returns the parameters of a request.
func (p *Plugin) parametersOf(configs []deviceConfig, request string) (parameters, error) {
	var class parameters
	var claim parameters
	for _, c := range configs {
		isOwn := c.Opaque != nil && c.Opaque.Driver == Driver
		if !isOwn || !c.appliesTo(request) {
			continue
		}
		own := &claim
		source := "claim"
		if c.Source == fromClass {
			own = &class
			source = "DeviceClass"
		}
		one, err := parseParameters(c.Opaque.Parameters, p.EnvReader)
		if err == nil {
			err = own.merge(one, true)
		}
		if err != nil {
			return parameters{}, fmt.Errorf("parameters of the %s: %w", source, err)
		}
	}
	err := class.merge(claim, false)
	return class, err
}

// Placements are the placements of devices, by their names in the pool.
type Placements map[string]device.Placement

// placementsOf returns the placements of the devices of a group. A device that several requests share
// has one.
func placementsOf(group []allocated) (Placements, error) {
	all := Placements{}
	for _, a := range group {
		have, isKnown := all[a.Device]
		if isKnown && have != a.parameters.Placement {
			return nil, fmt.Errorf("requests for device %q have different parameters", a.Device)
		}
		all[a.Device] = a.parameters.Placement
	}
	return all, nil
}

// renamed returns the environment of a group with the names that its requests want. The variables of a
// container cover all devices of the group, so that each name is the same for all of its requests. The
// environment is not changed.
func renamed(env map[string]string, group []allocated) (map[string]string, error) {
	var names parameters
	for _, a := range group {
		if err := names.merge(parameters{Env: a.parameters.Env}, true); err != nil {
			return nil, fmt.Errorf("parameters of several requests: %w", err)
		}
	}
	if len(names.Env) == 0 {
		return env, nil
	}
	out := maps.Clone(env)
	for name := range names.Env {
		delete(out, name)
	}
	for _, name := range slices.Sorted(maps.Keys(names.Env)) {
		value, isSet := env[name]
		if !isSet {
			return nil, fmt.Errorf("parameters: env.%s: the configuration sets no such variable for the devices", name)
		}
		to := names.Env[name]
		if _, isTaken := out[to]; isTaken {
			return nil, fmt.Errorf("parameters: env.%s: the container has a variable %s already", name, to)
		}
		out[to] = value
	}
	return out, nil
}
