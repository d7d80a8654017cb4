//go:build cluster

package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/product"
)

// TestSlices runs the tests TestCluster* of package dra on an API server and a scheduler,
// with the rights of the components.
func TestSlices(t *testing.T) {
	t.Parallel()
	bed.OnEachVersion(t, runSlices)
}

func runSlices(t *testing.T, v bed.Version) {
	c := cluster.NewWith(t, cluster.Options{Plane: v, Kubelet: v})
	c.Kubectl(t, "", "create", "namespace", namespace)
	c.Kubectl(t, "", "--namespace", namespace, "create", "serviceaccount", name)
	c.Kubectl(t, "", "apply", "-f", product.Repository("deploy", "dra/generic-dp.yaml"))
	tests := filepath.Join(t.TempDir(), "dra.test")
	build := exec.Command("go", "test", "-c", "-tags", "grpcnotrace,cluster", "-o", tests, "./internal/kubelet/dra")
	build.Dir = product.Repository()
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := c.Try("", tests, append([]string{"-test.v", "-test.run=TestCluster"}, c.ClientArgs(t)...)...)
	t.Logf("%s", text)
	if err != nil {
		t.Fatal(err)
	}
}
