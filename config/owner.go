package config

import (
	"fmt"
	"math"
	"regexp"
	"strconv"

	"github.com/generic-dp/generic-dp/device"
)

// ownerTable is the keys of container.owner.
var ownerTable = table[device.Owner]{name: "owner", keys: []key[device.Owner]{
	{name: "uid", form: integerForm(0, maxUnixID), read: func(v value, o *device.Owner) { o.UID = v.unixID(0) }},
	{name: "gid", form: integerForm(0, maxUnixID), read: func(v value, o *device.Owner) { o.GID = v.unixID(0) }},
	{name: "mode", form: anyText, read: func(v value, o *device.Owner) { o.Mode = v.mode() }},
}}

// maxUnixID: the highest number stands for "unchanged" (chown(2)).
const maxUnixID = math.MaxUint32 - 1

func readOwner(v value, c *Container) {
	c.Owner = new(device.Owner)
	readTable(v, ownerTable, c.Owner)
	if m, ok := v.raw.(map[string]any); ok && len(m) == 0 {
		v.report("an empty table: want at least one of uid, gid and mode", "")
	}
}

// unixID is v as the number of a user or group.
func (v value) unixID(least int64) *uint32 {
	id := uint32(v.integer(least, maxUnixID))
	return &id
}

// additionalGIDs is v as a list of groups, or one. The CDI library drops 0.
func (v value) additionalGIDs() []uint32 {
	var out []uint32
	for _, e := range v.items() {
		out = append(out, *e.unixID(1))
	}
	return out
}

// modeHint says how to write what a bare integer may have been: TOML takes
// 0o660 and 432 for the same.
func modeHint(n int64) string {
	decimal, octal := fmt.Sprintf("0%03d", n), fmt.Sprintf("0%03o", n)
	switch isMode := octalMode.MatchString; {
	case isMode(decimal) && isMode(octal) && decimal != octal:
		return fmt.Sprintf("TOML takes %d and %O for the same: write %q or %q", n, n, decimal, octal)
	case isMode(decimal):
		return fmt.Sprintf("write it in quotes: %q", decimal)
	case isMode(octal):
		return fmt.Sprintf("write it in quotes: %q", octal)
	}
	return ""
}

var octalMode = regexp.MustCompile(`^0?[0-7]{3}$`)

// mode is v as permission bits.
func (v value) mode() *uint32 {
	const want = `three octal digits such as "0660"`
	if n, ok := v.raw.(int64); ok {
		v.mistyped(want, modeHint(n))
		return nil
	}
	s, ok := v.text(want)
	if !ok {
		return nil
	}
	if !octalMode.MatchString(s) {
		v.report(quote(s)+" is not a mode: want "+want, "")
		return nil
	}
	bits, _ := strconv.ParseUint(s, 8, 32)
	mode := uint32(bits)
	return &mode
}
