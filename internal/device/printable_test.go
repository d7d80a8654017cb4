package device_test

import (
	"encoding/json"
	"testing"

	"github.com/generic-dp/generic-dp/internal/device"
)

// Characters that reorder, hide or end text are escaped. Text in any language is not.
func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Sonoff Zigbee 3.0":   "Sonoff Zigbee 3.0",
		"Gerät 設備 устройство": "Gerät 設備 устройство",
		"a\x1b[31mb\x07":      `a\u001b[31mb\u0007`,
		"a\u202egpj.exe":      `a\u202egpj.exe`,
		"\u2066a\u2069":       `\u2066a\u2069`,
		"a\u200bb\ufeffc":     `a\u200bb\ufeffc`,
		"a\u00adb":            `a\u00adb`,
		"a\u2028b\u2029c":     `a\u2028b\u2029c`,
		"a\u3164b\u115f":      `a\u3164b\u115f`,
		"a\u2800b\ufe0f":      `a\u2800b\ufe0f`,
		"a\ue000b":            `a\ue000b`,
		"a\u0378b":            `a\u0378b`,
		"a\U000e0041b":        `a\udb40\udc41b`,
		"a\xffb":              `a\xffb`,
		"\ufffd":              "\ufffd",
	} {
		got := device.Printable(text, "")
		if got != want {
			t.Errorf("Printable(%q) = %q, want %q", text, got, want)
		}
		var back string
		if text != "a\xffb" && (json.Unmarshal([]byte(`"`+got+`"`), &back) != nil || back != text) {
			t.Errorf("%q is not JSON of %q", got, text)
		}
	}
	if got := device.Printable("a\tb\nc\r", "\n\t"); got != "a\tb\nc\\u000d" {
		t.Errorf("with exceptions: %q", got)
	}
}
