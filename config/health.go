package config

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	// minInterval is the shortest interval. No check of a device takes longer.
	minInterval     = 5 * time.Second
	defaultInterval = 30 * time.Second
)

// readHealth reads the table health. It never returns nil: a resource without the table has no
// Health.
func readHealth(v value) *Health {
	h := &Health{Interval: defaultInterval}
	v.read(func(t *table) {
		t.boolean("open", &h.Open, "whether to check that each node of a device can be opened for reading")
		t.attributes("attr", &h.Attr, plainAttribute, "sysfs attributes and their values")
		t.boolean("link", &h.Link,
			"whether to check that network functions have a carrier; for a virtual function, that its physical function has one")
		t.text("tcp", &h.TCP, tcpAddress, "HOST:PORT that accepts TCP connections")
		readInterval := func(v value) time.Duration {
			return v.duration(minInterval, `"30s" or "2m"`)
		}
		bind(t, "interval", &h.Interval, readInterval, "time between two checks of a device")
	})
	return h
}

// addressForm checks a TCP address, except for a port that is a variable.
func addressForm(written, sample string) error {
	colon := strings.LastIndexByte(sample, ':')
	// The sample of a variable may be no valid port. If the text does not end with the port of the
	// sample, the port has a variable, and a valid port takes its place.
	if colon >= 0 {
		portIsVariable := !strings.HasSuffix(written, sample[colon:])
		if portIsVariable {
			sample = sample[:colon] + ":1"
		}
	}
	err := CheckAddress(sample)
	if err == nil {
		return nil
	}
	return fmt.Errorf(`%w: want one such as "10.0.0.5:554" or "[fd00::5]:554"`, err)
}

// CheckAddress returns an error unless address is HOST:PORT with a host and a port
// number. Its text continues the quoted address. Package matchers calls it for the results of
// variables. It never resolves the host.
func CheckAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	isInvalidHost := host == "" || strings.ContainsFunc(host, isNotInHost)
	if err != nil || isInvalidHost {
		return errors.New("is not HOST:PORT")
	}
	// net.Dial also accepts names of services, but they depend on /etc/services of the image.
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return errors.New("has no port from 1 to 65535")
	}
	return nil
}

// isNotInHost reports whether a character occurs neither in host names nor in addresses.
func isNotInHost(r rune) bool {
	isBlank := unicode.IsControl(r) || unicode.IsSpace(r)
	return isBlank || strings.ContainsRune("/@?#[]", r)
}
