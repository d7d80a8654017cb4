package config

import "fmt"

// virtual reads v as devices without hardware: names, tables, or a list of them.
// Devices with an invalid name are left out. An empty list returns nil.
func (v value) virtual() []Virtual {
	if v.isEmpty() {
		v.report(`the list is empty: want at least one device such as "lic-0"`, "")
	}
	items := v.items()
	// The limit is checked before the devices are created, so that a list over the limit takes no
	// memory.
	v.r.virtual += len(items)
	if v.r.virtual > maxVirtual {
		v.report(fmt.Sprintf("%d virtual devices exceed the limit of %d in a configuration", v.r.virtual, maxVirtual), "")
		return nil
	}
	var devices []Virtual
	for _, e := range items {
		d := e.virtualDevice()
		// checkVirtual compares the names, and an empty name would be a duplicate of another one.
		if d.Name != "" {
			devices = append(devices, d)
		}
	}
	return devices
}

// virtualDevice reads v as a name or a table. The name of an invalid device is empty.
func (v value) virtualDevice() Virtual {
	switch v.raw.(type) {
	case string:
		return Virtual{Name: v.virtualName()}
	case map[string]*node:
		return readVirtual(v)
	default:
		v.mistyped(`a name such as "lic-0", or a table such as { name = "cam-0", vars = { host = "10.0.0.5" } }`, "")
		return Virtual{}
	}
}

// readVirtual reads a virtual device that is a table.
func readVirtual(v value) Virtual {
	var d Virtual
	v.read(func(t *table) {
		bind(t, "name", stringForm, &d.Name, value.virtualName, `letters, digits, "-", "_" and "."`)
		t.require("name", `a name such as "lic-0"`, "")
		// vars is optional: texts without ${var:NAME} need no values.
		bind(t, "vars", stringTable, &d.Vars, value.virtualVars, "values of ${var:NAME}, by NAME")
	})
	return d
}

// virtualName reads v as the name of a virtual device, and returns an empty string if it is
// invalid.
func (v value) virtualName() string {
	return v.checked(`a name such as "lic-0"`, func(s string) (rule, hint string) {
		// The name becomes the ID of the device and the value of ${virtual}.
		if isName(s) && len(s) <= maxNamePart {
			return "", ""
		}
		return `is not a valid device name: it must consist of letters, digits, "-", "_" and ".", begin and end with a letter or digit, and have at most 63 characters`, ""
	})
}

// virtualVars reads the table v with the values of ${var:NAME}.
// Variables with an invalid name or value are left out. The result is never nil.
func (v value) virtualVars() map[string]string {
	vars := make(map[string]string)
	for name, e := range v.userKeys(`of strings such as { host = "10.0.0.5" }`, "") {
		// Other names could not be written in ${var:NAME}.
		if !isName(name) {
			const rule = ` is not a valid variable name: it must consist of letters, digits, "-", "_" and ".", and begin and end with a letter or digit`
			v.key(name).report(quote(name)+rule, "")
			continue
		}
		s, ok := e.literal("a string")
		if ok {
			vars[name] = s
		}
	}
	return vars
}
