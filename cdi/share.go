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

const (
	sharesKey = "generic-dp.github.io/shares"
	adminKey  = "generic-dp.github.io/admin"
)

// AllDevices are the devices that the claim holds or accesses beside their holders, as
// "RESOURCE=ID".
func (c Claim) AllDevices() []string {
	all := c.Devices()
	for _, r := range c.Requests {
		all = append(all, r.Admin...)
	}
	return all
}

// annotations returns what the spec of a claim says about a request.
func (r Request) annotations() map[string]string {
	all := map[string]string{devicesKey: strings.Join(r.Devices, ",")}
	if len(r.Admin) > 0 {
		all[adminKey] = strings.Join(r.Admin, ",")
	}
	if len(r.Shares) > 0 {
		text, err := json.Marshal(r.Shares)
		if err != nil {
			panic(err) // a struct of strings
		}
		all[sharesKey] = string(text)
	}
	return all
}

// readShares is the inverse of annotations, except for Devices.
func (r *Request) readShares(annotations map[string]string) error {
	r.Admin = split(annotations[adminKey])
	text := annotations[sharesKey]
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &r.Shares); err != nil {
		return fmt.Errorf("annotation %s: %w", sharesKey, err)
	}
	return nil
}
