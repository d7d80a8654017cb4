package pattern

import "testing"

func TestFromRegexp(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"^/dev/ttyUSB[0-9]+$":  "/dev/ttyUSB[0-9]*",
		"/dev/ttyUSB.*":        "/dev/ttyUSB*",
		`/dev/ttyUSB\d+`:       "/dev/ttyUSB[0-9]*",
		"/dev/(ttyUSB|ttyACM)": "/dev/{ttyUSB,ttyACM}",
		"/dev/ttyACM.+$":       "/dev/ttyACM?*",
		"^/dev/video0$":        "/dev/video0",
		"^/dev/[$":             "", // no glob
		"/dev/ttyUSB*":         "",
		"/dev/ttyUSB[0-9]":     "",
		"/dev/dri/card?":       "",
	} {
		if got := FromRegexp(s); got != want {
			t.Errorf("FromRegexp(%q) = %q, want %q", s, got, want)
		}
	}
	for s, want := range map[string]bool{
		"^/dev/x": true, "/dev/x$": true, "/dev/x[0-9]+": true, `/dev/x\d`: true,
		"/dev/dfl-port.*": false, "/dev/ttyUSB[0-9]": false, "/dev/a+b": false,
	} {
		if got := IsRegexp(s); got != want {
			t.Errorf("IsRegexp(%q) = %t", s, got)
		}
	}
}
