package config_test

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/config"
)

// A configuration for a kubelet may be invalid for specs alone.
func TestParseForCDI(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`match.glob = "/dev/x*"`:                                          "",
		"match.glob = \"/dev/x*\"\ncontainer.cdi = false":                 "",
		"match.glob = \"/dev/x*\"\ncontainer.path = \"/dev/y${index}\"":   "which is known in env, annotations and, without container.cdi, container.path only",
		"match.net.type = \"can\"\ncount = 2":                             "an interface moves into one container",
		"match.glob = \"/dev/x*\"\ncontainer.owner = { mode = \"0660\" }": "",
	} {
		file := config.File{Name: "c.toml", Data: []byte("domain = \"example.com\"\n[[resource]]\nname = \"r\"\n" + text + "\n")}
		cfg, err := config.ParseForCDI(file)
		switch {
		case want == "" && (err != nil || !cfg.Resources[0].Container.CDI):
			t.Errorf("%s: %v, want that it is injected by name", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
