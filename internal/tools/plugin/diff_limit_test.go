package plugin

import (
	"strings"
	"testing"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/tools/manifest"
)

// The largest configuration that serve accepts reaches the nodes, whatever its characters.
func TestDiffSendsLargeConfigurations(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"# <a> & \"b\"\n", "#\n", "#\t\\\n"} {
		text := strings.Repeat(line, 1<<20/len(line))
		sent := configMap([]config.File{{Name: "a.toml", Data: []byte(text)}})
		own, err := manifest.Find("standard input", sent)
		if err != nil || len(own) != 1 || string(own[0].Files[0].Data) != text {
			t.Errorf("a configuration of lines %q: %d found, error %v", line, len(own), err)
		}
	}
}
