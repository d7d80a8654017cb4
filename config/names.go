package config

import (
	"regexp"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"
)

// The grammar of names, as the API server has it
// (k8s.io/apimachinery/pkg/util/validation).
var (
	subdomain  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	nameInPart = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	identifier = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

const (
	maxNamePart = 63
	// maxSubdomain is that of Kubernetes; maxDomain leaves room for the
	// "requests." that quota puts before a resource name, which has to be
	// valid too (IsExtendedResourceName in k8s.io/kubernetes/pkg/apis/core).
	maxSubdomain = 253
	maxDomain    = maxSubdomain - len("requests.")
)

// checkDomain returns what the prefix of a resource name breaks, or empty.
func checkDomain(domain string) string {
	switch {
	case !subdomain.MatchString(domain):
		return `is not a DNS subdomain: want lower-case letters, digits, "-" and ".", such as "example.com"`
	case len(domain) > maxDomain:
		return "is too long for the domain of a resource: want at most 244 characters"
	case strings.HasSuffix(domain, "kubernetes.io"):
		return "is reserved for Kubernetes: want a domain of your own"
	case strings.HasPrefix(domain, "requests."):
		return `is reserved for quota: want a domain that does not begin with "requests."`
	}
	return ""
}

// checkNamePart returns what the part of a resource name after the domain
// breaks, or empty.
func checkNamePart(name string) string {
	switch {
	case !nameInPart.MatchString(name):
		return `is not a resource name: want letters, digits, "-", "_" and ".", beginning and ending with a letter or digit`
	case len(name) > maxNamePart:
		return "is too long for a resource name: want at most 63 characters after the domain"
	}
	return ""
}

// checkKind returns what a resource name breaks as the kind of a CDI spec, or
// empty: there vendor and class begin with a letter.
func checkKind(domain, name string) string {
	if parser.ValidateVendorName(domain) != nil || parser.ValidateClassName(name) != nil {
		return "can't be the kind of a CDI spec: want domain and name to begin with a letter where container.cdi is true"
	}
	return ""
}

// cdiDomain is that of the annotations by which runtimes are told of CDI
// devices (pkg/cdi/annotations.go of the CDI library): one of them would hand
// over what no match selects.
const cdiDomain = "cdi.k8s.io"

// annotationName returns what the key of an annotation breaks, or empty.
func annotationName(_, key string) (rule, hint string) {
	domain, name, ok := strings.Cut(key, "/")
	if !ok {
		domain, name = "x", key
	}
	if !subdomain.MatchString(domain) || len(domain) > maxSubdomain || !nameInPart.MatchString(name) || len(name) > maxNamePart {
		return `is not the key of an annotation: want one such as "example.com/name", at most 63 characters after the domain`, ""
	}
	if domain == cdiDomain {
		return "is read by runtimes as a list of CDI devices: want another domain", "container.cdi_devices passes CDI devices along"
	}
	return "", ""
}
