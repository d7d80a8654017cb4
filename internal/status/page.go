package status

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"time"
)

// page shows /status.json. It has no state of its own, and only loads that file.
//
//go:embed page.html
var page string

// policy is the Content-Security-Policy of the page: only its own style and script, and only
// requests to this program.
var policy = sync.OnceValue(func() string {
	return strings.Join([]string{
		"default-src 'none'",
		"style-src " + hashOf("style"),
		"script-src " + hashOf("script"),
		"connect-src 'self'",
		"base-uri 'none'",
		"frame-ancestors 'none'",
	}, "; ")
})

// hashOf is the source of an element of the page, for a Content-Security-Policy.
func hashOf(element string) string {
	_, text, _ := strings.Cut(page, "<"+element+">")
	text, _, _ = strings.Cut(text, "</"+element+">")
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// statusPage is /status.json: the state, and what only the page shows.
type statusPage struct {
	Status
	// Now is the time of the state.
	Now time.Time `json:"now"`
	// Alerts are the problems that do not belong to one device.
	Alerts []Alert `json:"alerts"`
	// Docs is the address of the page that explains problems.
	Docs string `json:"docs"`
}

// writeStatus writes /status.json.
func writeStatus(w io.Writer, s Status, now time.Time) {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	// Every field can be encoded.
	_ = encoder.Encode(statusPage{
		Status: s,
		Now:    now.UTC(),
		Alerts: append([]Alert{}, s.Alerts(now)...),
		Docs:   docs(s.Version),
	})
}
