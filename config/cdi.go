package config

import (
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/pattern"
)

// cdiName selects the host's CDI devices by their qualified names.
var cdiName = kind{
	want: `a qualified name or a pattern such as "nvidia.com/gpu=*", or a list of them`,
	check: func(a pattern.Alternative) (rule, hint string) {
		s, whole := a.Literal()
		switch {
		case whole && parser.IsQualifiedName(s):
			return "", ""
		case whole:
			if parser.IsQualifiedName(s + "=x") {
				hint = didYouMean(s + "=*")
			}
			return notQualified, hint
		case strings.Trim(strings.ToLower(a.Shape()), "abcdefghijklmnopqrstuvwxyz0123456789._:-/=*") != "":
			return notQualified, ""
		}
		return "", ""
	},
}

const notQualified = `is not the name of a CDI device: want VENDOR/CLASS=NAME, such as "nvidia.com/gpu=0"`

// cdiDevice is the name of a CDI device that is passed along.
var cdiDevice = role{want: `a name such as "nvidia.com/gpu=0"`, check: func(_, sample string) (rule, hint string) {
	if !parser.IsQualifiedName(sample) {
		return notQualified, ""
	}
	return "", ""
}}

// cdiDevices is v as a name with variables or a list of them.
func (v value) cdiDevices() []device.Text {
	var out []device.Text
	for _, e := range v.items() {
		if text := e.variables(cdiDevice); text != nil {
			out = append(out, text)
		}
	}
	return out
}
