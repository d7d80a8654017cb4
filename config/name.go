package config

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/device"
)

// naming is what the name of a resource is made of.
var naming = role{want: `a name such as "gpu" or "vendor.example/gpu"`, naming: true}

// readName completes the name with the domain of the configuration.
func readName(v value, r *Resource) {
	text := v.variables(naming)
	s, isString := v.raw.(string)
	if !isString || text == nil && s != "" {
		return
	}
	// Whatever a variable stands for, what it results in is made legal: a
	// letter in its place leaves what is written to be checked.
	sample := text.Expand(func(string) (string, bool) { return "x", true }).String()
	domain, name, own := strings.Cut(sample, "/")
	if !own {
		domain, name = v.w.domain, sample
	}
	if rule := checkNamePart(name); rule != "" {
		v.report(quote(s)+" "+rule, "")
		return
	}
	switch {
	case own:
		if text[0].Var != "" || !strings.Contains(text[0].Literal, "/") {
			v.report(quote(s)+" has a variable in its domain: want variables behind it", "")
			return
		}
		if rule := checkDomain(domain); rule != "" {
			v.report(quote(s)+": the domain "+rule, "")
			return
		}
		text = append(device.Literal(strings.TrimPrefix(text[0].Literal, domain+"/")), text[1:]...)
	case domain == "" && !v.w.undecided:
		v.w.undecided = true // said once
		v.report(quote(s)+" has no domain: want one in the name, or for all names at the top of the file",
			`write domain = "example.com" above the first [[resource]]`)
		return
	case domain == "":
		return
	}
	r.Name = domain + "/" + text.String()
	if len(text.Vars()) > 0 {
		r.NameText = text
	}
}

// readNames reads what the variables of a name result in and the nicer names
// for it.
func readNames(v value, r *Resource) {
	m, ok := v.raw.(map[string]any)
	if !ok {
		v.mistyped(`a table such as { "10de" = "nvidia" }`, "")
		return
	}
	if len(r.NameText) == 0 && r.Name != "" {
		v.report("names without a variable in name: want one there", `name = "${pci.vendor}" gives each vendor a resource of its own`)
		return
	}
	possible := resultsOf(r.NameText)
	r.Names = make(map[string]string, len(m))
	for _, result := range slices.Sorted(maps.Keys(m)) {
		if above, ok := v.enclosing(result); ok {
			v.key(result).report(quote(result)+" is a key of "+tableName(above)+": want what name results in", v.headerHint(above))
			continue
		}
		e := v.child(result)
		name, ok := e.literal(`a name such as "gpu"`)
		if !ok {
			continue
		}
		if rule := checkNamePart(name); rule != "" {
			e.report(quote(name)+" "+rule, "")
			continue
		}
		if r.Name != "" && !possible.MatchString(result) {
			hint := ""
			if vars := r.NameText.Vars(); len(vars) == 1 && result != "" {
				hint = didYouMean(r.NameText.Expand(func(string) (string, bool) { return result, true }).String())
			}
			v.key(result).report(quote(result)+" is nothing that "+quote(r.NameText.String())+" results in: want the whole name behind the domain", hint)
			continue
		}
		r.Names[result] = name
	}
}

// resultsOf is an expression for all that a text may result in.
func resultsOf(text device.Text) *regexp.Regexp {
	e := "(?s)^"
	for _, p := range text {
		if p.Var != "" {
			e += ".*"
		} else {
			e += regexp.QuoteMeta(p.Literal)
		}
	}
	return regexp.MustCompile(e + "$")
}
