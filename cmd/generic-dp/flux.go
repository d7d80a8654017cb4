package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/generic-dp/generic-dp/config"
)

// fluxAnnotation keeps Flux from replacing variables in an object (kustomize-controller,
// docs/spec/v1/kustomizations.md, "Post build variable substitution").
const fluxAnnotation = "kustomize.toolkit.fluxcd.io/substitute: disabled"

// fluxVariable is what Flux may replace. With "$$" it leaves a "$".
var fluxVariable = regexp.MustCompile(`\$?\$\{[^}\s]*\}`)

// fluxNotes notes the variables of a manifest of Flux that Flux replaces before the program sees them, if
// the Kustomization above the manifest has postBuild. Nothing in the manifest says whether it has.
func fluxNotes(path string) []config.Problem {
	data, err := os.ReadFile(path)
	text := string(data)
	isOfFlux := strings.Contains(text, ".toolkit.fluxcd.io/")
	if err != nil || !isOfFlux || strings.Contains(text, fluxAnnotation) {
		return nil
	}
	first := fluxVariable.FindString(text)
	if first == "" {
		return nil
	}
	becomes := "is replaced by Flux, and is empty in the cluster"
	if strings.HasPrefix(first, "$$") {
		becomes = "is " + first[1:] + " in the cluster, and is checked here as written"
	}
	return []config.Problem{{
		File: path,
		Text: fmt.Sprintf("%s %s, if a Kustomization with postBuild applies this file", first, becomes),
		Hint: "the annotation " + fluxAnnotation + " of the object prevents it",
	}}
}
