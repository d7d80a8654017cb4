package status

import "strings"

// Section is a section of docs/troubleshooting.md: the anchor of its heading.
type Section string

// The sections that explain reasons and alerts.
const (
	SectionAbsent        Section = "the-device-is-absent"
	SectionHealthCheck   Section = "a-health-check-fails"
	SectionInjection     Section = "the-device-cannot-be-injected"
	SectionForgottenPod  Section = "a-deleted-pod-still-has-its-device"
	SectionRetiring      Section = "the-device-is-retiring"
	SectionRegistration  Section = "the-resource-is-not-registered"
	SectionConfiguration Section = "a-configuration-is-refused"
	SectionHost          Section = "problems-on-this-host"
)

// repository has the documentation of each version.
const repository = "https://github.com/generic-dp/generic-dp"

// docs is the address of the page with the sections for a version of the program.
func docs(version string) string {
	return repository + "/blob/" + refOf(version) + "/docs/troubleshooting.md"
}

// URL is the address of the section for a version of the program.
func (s Section) URL(version string) string {
	return docs(version) + "#" + string(s)
}

// refOf is the tag of a released version such as "0.1.0" or "v0.1.0", or else the main branch.
func refOf(version string) string {
	number := strings.TrimPrefix(version, "v")
	hasOnlyNumbers := strings.Trim(number, "0123456789.") == ""
	if hasOnlyNumbers && strings.Count(number, ".") == 2 {
		return "v" + number
	}
	return "main"
}
