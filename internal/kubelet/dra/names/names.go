// Package names has the names that the DRA driver shares with the objects that users apply.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
)

// MaxValue is the maximum length of the value of an attribute.
const MaxValue = 64

// Cut returns at most the first n bytes of s, ending with a letter or digit if it can.
func Cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	// A DNS label must not be empty or end with "-".
	if s = strings.TrimRight(s, "-"); s == "" {
		return "x"
	}
	return s
}

// Value returns the value of an attribute. A text that is longer than the API allows is cut and
// gets a hash.
func Value(s string) string {
	// JSON cannot hold other bytes, which a descriptor of a device may have.
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) <= MaxValue {
		return s
	}
	return strings.ToValidUTF8(s[:MaxValue-device.HashLen], "") + device.HashPart(s)
}

// Class is the name of a resource's DeviceClass, a DNS subdomain:
// "zigbee.example.com". A name that is no DNS label gets a hash.
func Class(resource string) string {
	domain, name, _ := strings.Cut(resource, "/")
	class := strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(name))
	if class != name {
		sum := sha256.Sum256([]byte(resource))
		// With the hyphen and ten digits, this is the length of a label.
		class = Cut(class, 52) + "-" + hex.EncodeToString(sum[:])[:10]
	}
	return class + "." + domain
}

// ClassManifest is the DeviceClass of a resource as YAML: its devices serve claims, and pods that
// request the extended resource of the same name.
func ClassManifest(resource string) string {
	return fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: %s
spec:
  extendedResourceName: %s
  selectors:
    - cel:
        expression: device.driver == %q && device.attributes[%q].resource == %q
`, Class(resource), resource, device.OwnDomain, device.OwnDomain, Value(resource))
}
