package cdi

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Share is the part that a claim has of a capacity of a device. Quantities are written as in the
// API.
type Share struct {
	// Device is "RESOURCE=ID".
	Device   string `json:"device"`
	Capacity string `json:"capacity"`
	Amount   string `json:"amount"`
	// Of is the amount that the device had when the claim was prepared.
	Of string `json:"of"`
}

const sharesKey = "generic-dp.github.io/shares"

// annotations returns what the spec of a claim says about a request.
func (r Request) annotations() map[string]string {
	all := map[string]string{devicesKey: strings.Join(r.Devices, ",")}
	if len(r.Shares) > 0 {
		text, err := json.Marshal(r.Shares)
		if err != nil {
			panic(err) // a struct of strings
		}
		all[sharesKey] = string(text)
	}
	return all
}

// readShares is the inverse of annotations, as far as shares are concerned.
func (r *Request) readShares(annotations map[string]string) error {
	text := annotations[sharesKey]
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &r.Shares); err != nil {
		return fmt.Errorf("annotation %s: %w", sharesKey, err)
	}
	return nil
}
