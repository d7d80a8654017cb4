package importer

import (
	"fmt"
	"regexp"
	"strings"
)

// The domain and the name of an extended resource, as the API server accepts them.
const (
	subdomain = `[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*`
	namePart  = `[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?`
)

// maxDomain is the longest domain: quotas prefix the name with "requests."
// (IsExtendedResourceName in k8s.io/kubernetes/pkg/apis/core/v1/helper).
const maxDomain = 253 - len("requests.")

// fullMatch reports whether an expression matches the whole text. Expressions are compiled
// where they are used, since no other command needs them.
func fullMatch(expression, text string) bool {
	return regexp.MustCompile(`^(?:` + expression + `)$`).MatchString(text)
}

// checkName returns the rule that the name of a resource violates, or empty. Its variables
// may have any value.
func checkName(full string) string {
	full = regexp.MustCompile(`\$\{[a-z0-9]+\}`).ReplaceAllString(full, "x")
	domain, name, _ := strings.Cut(full, "/")
	if !isResourceDomain(domain) {
		return fmt.Sprintf(`%q is not a valid domain of a resource: use a DNS subdomain such as "example.com"`, domain)
	}
	if !fullMatch(namePart, name) {
		return fmt.Sprintf(`%.80q is not a valid name of a resource: use at most 63 letters, digits, "-", "_" and ".", beginning and ending with a letter or digit`, name)
	}
	return ""
}

// isResourceDomain reports whether the API server accepts a domain for extended resources.
func isResourceDomain(domain string) bool {
	isSubdomain := fullMatch(subdomain, domain) && len(domain) <= maxDomain
	isReserved := strings.HasSuffix(domain, "kubernetes.io") || strings.HasPrefix(domain, "requests.")
	return isSubdomain && !isReserved
}

// resourceName makes a name of a resource from any text: every character that is not
// allowed becomes "-".
func resourceName(text string) string {
	name := regexp.MustCompile(`[^A-Za-z0-9_.-]+`).ReplaceAllString(text, "-")
	const longest = 63
	if len(name) > longest {
		name = name[:longest]
	}
	return strings.Trim(name, "-_.")
}
