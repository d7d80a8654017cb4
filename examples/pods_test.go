package examples_test

import (
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/generic-dp/generic-dp/config"
)

// The probes of pods that follow their device fit the time for which the file healthy stays absent: the
// liveness probe fails before it is over, and the startup probe no sooner than that.
func TestProbesFitTheHold(t *testing.T) {
	t.Parallel()
	text := "domain = \"example.com\"\n[[resource]]\nname = \"zigbee\"\nmatch.glob = \"/dev/ttyUSB*\"\ncontainer.health_dir = \"/run/device\"\n"
	cfg, err := config.Parse(config.File{Name: "config.toml", Data: []byte(text)})
	must(t, err)
	container := cfg.Resources[0].Container
	type probe struct {
		Exec   struct{ Command []string }
		Period int `yaml:"periodSeconds"`
		Fails  int `yaml:"failureThreshold"`
	}
	var deployment struct {
		Spec struct {
			Strategy struct{ Type string }
			Template struct {
				Spec struct {
					Containers []struct {
						Startup  probe `yaml:"startupProbe"`
						Liveness probe `yaml:"livenessProbe"`
					}
				}
			}
		}
	}
	manifest, err := os.ReadFile("pods/follow.yaml")
	must(t, err)
	must(t, yaml.Unmarshal(manifest, &deployment))
	if deployment.Spec.Strategy.Type != "Recreate" {
		t.Errorf("strategy %q, want Recreate: the new pod cannot get the device of the old one", deployment.Spec.Strategy.Type)
	}
	c := deployment.Spec.Template.Spec.Containers[0]
	const hold = 40 // seconds, see healthHold in internal/agent
	if most := c.Liveness.Period*c.Liveness.Fails + 1; most >= hold || most < 10 {
		t.Errorf("the liveness probe fails within %d s, want less than %d s", most, hold)
	}
	if least := c.Startup.Period * (c.Startup.Fails - 1); least <= hold {
		t.Errorf("the startup probe fails after %d s, want more than %d s", least, hold)
	}
	for _, p := range []probe{c.Startup, c.Liveness} {
		if got := strings.Join(p.Exec.Command, " "); got != "test -f "+container.HealthDir+"/healthy" {
			t.Errorf("a probe runs %q", got)
		}
	}
}

// The pod with TLS acceleration requests a resource of its example, and has a class of its manifest.
func TestPodsRequestResourcesOfExamples(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("configs/qat-tls.toml")
	must(t, err)
	cfg, err := config.Parse(config.File{Name: "qat-tls.toml", Data: text})
	must(t, err)
	manifest, err := os.ReadFile("pods/qat-tls.yaml")
	must(t, err)
	for _, want := range []string{"limits: { " + string(cfg.Resources[0].Name) + ": 1,", "  name: kata-qat\n", "runtimeClassName: kata-qat\n"} {
		if !strings.Contains(string(manifest), want) {
			t.Errorf("the manifest lacks %q", want)
		}
	}
}
