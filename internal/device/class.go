package device

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// The names in this file are shared by the DRA driver and the objects that users apply.

// MaxAttribute is the maximum length of the value of an attribute in a ResourceSlice.
const MaxAttribute = 64

// CutLabel returns at most the first n bytes of s, ending with a letter or digit if it can.
func CutLabel(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	// A DNS label must not be empty or end with "-".
	if s = strings.TrimRight(s, "-"); s == "" {
		return "x"
	}
	return s
}

// AttributeValue returns the value of an attribute in a ResourceSlice. A text that is longer than the API
// allows is cut and gets a hash.
func AttributeValue(s string) string {
	// JSON cannot hold other bytes, which a descriptor of a device may have.
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) <= MaxAttribute {
		return s
	}
	return strings.ToValidUTF8(s[:MaxAttribute-HashLen], "") + HashPart(s)
}

// ClassName is the name of a resource's DeviceClass, a DNS subdomain:
// "zigbee.example.com". A name that is no DNS label gets a hash.
func ClassName(resource string) string {
	domain, name, _ := strings.Cut(resource, "/")
	class := strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(name))
	if class != name {
		sum := sha256.Sum256([]byte(resource))
		// With the hyphen and ten digits, this is the length of a label.
		class = CutLabel(class, 52) + "-" + hex.EncodeToString(sum[:])[:10]
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
`, ClassName(resource), resource, OwnDomain, OwnDomain, AttributeValue(resource))
}
