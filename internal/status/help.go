package status

import "regexp"

// Section is a section of docs/troubleshooting.md: the anchor of its heading.
type Section string

// The sections that explain reasons and alerts.
const (
	SectionAbsent        Section = "the-device-is-absent"
	SectionHealthCheck   Section = "a-health-check-fails"
	SectionInjection     Section = "the-device-cannot-be-injected"
	SectionForgottenPod  Section = "a-deleted-pod-still-has-its-device"
	SectionRetiring      Section = "the-device-is-retiring"
	SectionNoDevice      Section = "no-device-matches"
	SectionRegistration  Section = "the-resource-is-not-registered"
	SectionConfiguration Section = "a-configuration-is-refused"
	SectionFull          Section = "the-lists-for-the-kubelet-are-full"
	SectionHost          Section = "problems-on-this-host"
)

// repository has the documentation of each version.
const repository = "https://github.com/generic-dp/generic-dp"

// release matches the versions whose documentation has a tag.
var release = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+$`)

// URL is the address of the section for a version of the program.
func (s Section) URL(version string) string {
	ref := "main"
	if release.MatchString(version) {
		ref = version
	}
	return repository + "/blob/" + ref + "/docs/troubleshooting.md#" + string(s)
}
