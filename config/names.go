package config

import (
	"cmp"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/order"
)

const (
	decimal = "0123456789"
	lower   = "abcdefghijklmnopqrstuvwxyz" + decimal
	alnum   = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// consists reports whether s consists of these characters and is not empty.
func consists(s, characters string) bool { return s != "" && strings.Trim(s, characters) == "" }

// isIdentifier reports whether s has letters, digits and "_", and does not begin with a
// digit.
// It accepts no empty string.
func isIdentifier(s string) bool {
	return consists(s, alnum+"_") && !strings.Contains(decimal, s[:1])
}

// isName reports whether s is a qualified name without a domain, of any length: letters,
// digits, "-", "_" and ".", with a letter or digit at each end (IsQualifiedName in
// k8s.io/apimachinery/pkg/util/validation).
func isName(s string) bool {
	hasSpecialAtEnd := strings.Trim(s, "-_.") != s
	return consists(s, alnum+"-_.") && !hasSpecialAtEnd
}

// isSubdomain reports whether s is a DNS subdomain (RFC 1123) of any length. Upper case is not
// valid in Kubernetes.
func isSubdomain(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		hasHyphenAtEnd := strings.Trim(label, "-") != label
		if hasHyphenAtEnd || !consists(label, lower+"-") {
			return false
		}
	}
	return true
}

const (
	// maxNamePart is the limit of Kubernetes for the part of a name after the domain.
	maxNamePart = 63
	// maxSubdomain is the limit of Kubernetes. maxDomain leaves room for the prefix
	// "requests.", with which a ResourceQuota names a resource: the result must be valid as
	// well (IsExtendedResourceName in k8s.io/kubernetes/pkg/apis/core).
	maxSubdomain = 253
	maxDomain    = maxSubdomain - len("requests.")
)

// checkDomain returns the rule that the prefix of a resource name violates.
func checkDomain(domain string) error {
	switch {
	case !isSubdomain(domain):
		return broken(`is not a DNS subdomain: want lower-case letters, digits, "-" and ".", such as "example.com"`)
	case len(domain) > maxDomain:
		return broken("is too long: the domain of a resource has at most 244 characters")
	// Such a name is not the name of an extended resource (IsNativeResource in
	// k8s.io/kubernetes/pkg/apis/core/v1/helper).
	case strings.HasSuffix(domain, "kubernetes.io"):
		return broken("is reserved for Kubernetes: use a domain of your own")
	case strings.HasPrefix(domain, "requests."):
		return broken(`is reserved for quota: a domain must not begin with "requests."`)
	// A CDI kind of this domain could be the kind of a claim, whose file it would replace.
	case domain == device.OwnDomain || strings.HasSuffix(domain, "."+device.OwnDomain):
		return broken("is reserved for this program: use a domain of your own")
	}
	return nil
}

// checkNamePart returns the rule that the part of a resource name after the domain violates.
func checkNamePart(name string) error {
	if !isName(name) {
		return broken(`is not a valid resource name: it must consist of letters, digits, "-", "_" and ".", and begin and end with a letter or digit`)
	}
	if len(name) > maxNamePart {
		return broken("is too long: a resource name has at most 63 characters after the domain")
	}
	return nil
}

// checkKind returns the rule that a resource name violates as the kind of a CDI spec: vendor and class
// begin with a letter there (CDI specification, "Kind").
func checkKind(domain, name string) error {
	vendorErr := parser.ValidateVendorName(domain)
	classErr := parser.ValidateClassName(name)
	if vendorErr != nil || classErr != nil {
		return broken("cannot be the kind of a CDI spec: with container.cdi = true, domain and name must begin with a letter")
	}
	return nil
}

// readName reads v as the name of a resource, and completes it with the domain of the
// configuration. If the name is invalid, r.Name stays empty, which later checks take into account.
func (r *Resource) readName(v value) {
	text := v.text(resourceName)
	s, isString := v.raw.(string)
	// An empty string is valid as a text. checkNamePart reports it as a name below.
	isInvalid := text == nil && s != ""
	if !isString || isInvalid {
		return
	}
	// --domains could not limit a domain with variables, which is only known when the devices are.
	domain, rest, hasDomain := strings.Cut(s, "/")
	if hasDomain && !strings.Contains(domain, "${") {
		text, _ = parseText(rest) // a part of a valid text
	} else {
		hasDomain = false
		domain = v.r.domain.value
	}
	// Only the literal parts are checked, with a letter in place of each variable: matching
	// makes the values of variables valid.
	if v.violates(s, checkNamePart(sampleName(text))) {
		return
	}
	if domain == "" && !hasDomain {
		v.reportNoDomain(s)
		return
	}
	if err := checkDomain(domain); err != nil && hasDomain {
		v.reportRule(quote(s)+": the domain ", err)
		return
	}
	// Only a valid domain is checked against --domains.
	v.needsDomain(domain)
	// String returns the variables as written.
	r.Name = domain + "/" + text.String()
	if len(text.Vars()) > 0 {
		r.NameText = text
	}
}

// reportNoDomain reports the first name without a domain. A domain at the top of the file would
// also complete the others.
func (v value) reportNoDomain(s string) {
	// Either the message was already given, or a file that cannot be read may have the domain.
	if v.r.domainUndecided {
		return
	}
	v.r.domainUndecided = true
	v.report(
		quote(s)+" has no domain: set domain at the top of the file, or write it in the name",
		`write domain = "example.com" above the first [[resource]]`,
	)
}

// sampleName returns a name with a letter in place of each variable. A letter is valid at every
// position of a name.
func sampleName(text device.Text) string {
	return text.Expand(func(string) (string, bool) {
		return "x", true
	}).String()
}

// readNames reads v as a table that maps the results of a name with variables to nicer
// names.
func (r *Resource) readNames(v value) {
	for result, e := range v.userKeys(`such as { "10de" = "nvidia" }`, "a result of name") {
		name, ok := e.literal(`a name such as "gpu"`)
		if !ok {
			continue
		}
		legal := device.LegalName(name)
		if legal == "" {
			e.report(quote(name) + " has no character that a name may have")
			continue
		}
		key := v.key(result)
		// The keys are sorted by name. The position restores the order of the file for patterns, of which
		// several may match one result.
		at := 0
		isPattern := strings.ContainsAny(result, `*?[{\`)
		if isPattern {
			at = key.at
		}
		p := key.values(anyText)
		if p.Negative() {
			key.violates(result, errNegated)
		}
		r.Names = append(r.Names, NicerName{
			Result:  p,
			Name:    legal,
			Written: name,
			key:     result,
			at:      at,
		})
	}
	// Literal results are at 0 and come first: they are more specific than any pattern.
	order.Stable(r.Names, func(a, b NicerName) int {
		return cmp.Compare(a.at, b.at)
	})
}
