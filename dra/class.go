package dra

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// className is the name of a resource's DeviceClass, a DNS subdomain:
// "zigbee.example.com". A name that is no DNS label gets a hash.
func className(resource string) string {
	domain, name, _ := strings.Cut(resource, "/")
	class := strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(name))
	if class != name {
		sum := sha256.Sum256([]byte(resource))
		class = cut(class, 52) + "-" + hex.EncodeToString(sum[:])[:10]
	}
	return class + "." + domain
}

// Class is the DeviceClass of a resource as YAML: its devices serve claims, and pods that
// request the extended resource of the same name.
func Class(resource string) string {
	return fmt.Sprintf(`apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: %s
spec:
  extendedResourceName: %s
  selectors:
    - cel:
        expression: device.driver == %q && device.attributes[%q].resource == %q
`, className(resource), resource, Driver, Driver, value(resource))
}
