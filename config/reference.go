package config

import _ "embed"

// Reference is a configuration that has every key of the language, with its
// default and its meaning as comments.
//
//go:embed reference.toml
var Reference string
