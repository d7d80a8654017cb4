//go:build cluster

package cluster_test

import (
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/generic-dp/generic-dp/test/e2e/bed"
	"github.com/generic-dp/generic-dp/test/e2e/cluster"
	"github.com/generic-dp/generic-dp/test/e2e/fixture"
	"github.com/generic-dp/generic-dp/test/e2e/product"
)

// goEnv is a variable of the go command, for one that runs with another home directory and without a network.
func goEnv(t *testing.T, name string) string {
	t.Helper()
	value, err := exec.Command("go", "env", name).Output()
	must(t, err)
	return name + "=" + strings.TrimSpace(string(value))
}

// TestRelease is the first hour with a release: it is published to a registry, signed, and
// installed from there with the configuration of init on a host with a stick. Only the
// resource's name is edited.
func TestRelease(t *testing.T) {
	t.Parallel()
	c := cluster.New(t)
	host := c.Hardware(t)
	stick := fixture.Stick{Port: "1-1", ID: "10c4:ea60", Serial: "A1B2C3", TTY: "ttyUSB0"}
	host.Plug(stick)
	address := serveRegistry(t, c)
	version := appVersion(t)
	run := func(program string, args ...string) string {
		t.Helper()
		out, err := c.Try("", program, args...)
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", filepath.Base(program), args, err, out)
		}
		return out
	}

	artifacts := product.Repository("dist", "e2e")
	publish := func(env ...string) (image, chart string) {
		t.Helper()
		args := []string{goEnv(t, "GOMODCACHE"), goEnv(t, "GOCACHE"), "VERSION=" + version, "OUT=" + artifacts,
			"PATH=" + filepath.Dir(c.Tool("helm")) + ":" + os.Getenv("PATH")}
		args = append(args, env...)
		published := run("/usr/bin/env", append(args, product.Repository("hack", "publish.sh"), address)...)
		found := regexp.MustCompile(`(?m)^image=(\S+)\nchart=(\S+)$`).FindStringSubmatch(published)
		if found == nil {
			t.Fatalf("hack/publish.sh printed %q, want image= and chart= lines", published)
		}
		return found[1], found[2]
	}
	image, chart := publish()
	// The digests are of the artifacts, whatever the times of their files and the zone.
	must(t, os.Chtimes(filepath.Join(artifacts, "generic-dp-"+strings.TrimPrefix(version, "v")+".tgz"), time.Time{}, time.Unix(1, 0)))
	if sameImage, sameChart := publish("TZ=Asia/Tokyo"); sameImage != image || sameChart != chart {
		t.Errorf("the same artifacts are published as %s and %s, and then as %s and %s", image, chart, sameImage, sameChart)
	}
	checkSignatures(t, c, image, chart)

	dir := t.TempDir()
	config := strings.Replace(run(product.Binary(t), "init", "--sysfs", c.Sysfs()), `name = "serial"`, `name = "zigbee"`, 1)
	file := filepath.Join(dir, "generic-dp.toml")
	must(t, os.WriteFile(file, []byte(config), 0o644))
	// The fixture's /sys, since the kernel's has no stick.
	repository, _, _ := strings.Cut(chart, "@")
	helm(t, c, map[string]any{
		"image":             map[string]any{"registry": address},
		"extraArgs":         []string{"--sysfs=/fixture/sys"},
		"extraVolumes":      []v1.Volume{{Name: "fixture", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: c.Sysfs()}}}},
		"extraVolumeMounts": []v1.VolumeMount{{Name: "fixture", MountPath: "/fixture/sys", ReadOnly: true}},
	}, "install", name, "oci://"+repository, "--plain-http", "--version", strings.TrimPrefix(version, "v"), "--set-file", `config.10-generic-dp\.toml=`+file)
	pod := c.WaitDaemonSet(t, namespace, name)
	if id := pod.Status.ContainerStatuses[0].ImageID; !strings.HasSuffix(id, image[strings.Index(image, "@"):]) {
		t.Errorf("the pod runs %s, want %s", id, image)
	}
	c.WaitResource(t, "example.com/zigbee", 1)

	holder := bed.Workload("holder", "example.com/zigbee", 1)
	holder.Spec.RestartPolicy = v1.RestartPolicyNever
	holder.Spec.Containers[0].Command = []string{"/tool", "inspect", "/dev"}
	c.Apply(t, holder)
	waitSucceeded(t, c, holder.Name)
	logs, err := filepath.Glob(c.Dir + "/pods/*_holder_*/main/0.log")
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs of the pod holder: %q, %v, want one", logs, err)
	}
	report, err := os.ReadFile(logs[0])
	if err != nil || !strings.Contains(string(report), `"/dev/serial"`) {
		t.Errorf("the container lacks /dev/serial: %v\n%s", err, report)
	}
}

func appVersion(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chartDir, "Chart.yaml"))
	must(t, err)
	var chart struct{ AppVersion string }
	must(t, yaml.Unmarshal(text, &chart))
	return chart.AppVersion
}

// serveRegistry serves a registry in this process, on the loopback device of the cluster.
func serveRegistry(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	listener := c.Listen(t, "127.0.0.1:5000")
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true))}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	return listener.Addr().String()
}

// checkSignatures signs like the workflow of a release, but with a key instead of its
// identity, and without the public log.
func checkSignatures(t *testing.T, c *cluster.Cluster, refs ...string) {
	t.Helper()
	dir := t.TempDir()
	cosign := func(args ...string) (string, error) {
		return c.Try("", "/usr/bin/env", append([]string{"-C", dir, "COSIGN_PASSWORD=", c.Tool("cosign")}, args...)...)
	}
	succeeds := func(text string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	succeeds(cosign("generate-key-pair"))
	sums, err := os.ReadFile(product.Repository("dist", "e2e", "SHA256SUMS"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "SHA256SUMS"), sums, 0o644))
	sign := append([]string{"-C", dir, "COSIGN_PASSWORD=", "PATH=" + filepath.Dir(c.Tool("cosign")) + ":" + os.Getenv("PATH"),
		"COSIGN_FLAGS=--key cosign.key --use-signing-config=false --tlog-upload=false",
		product.Repository("hack", "sign.sh"), "SHA256SUMS"}, refs...)
	succeeds(c.Try("", "/usr/bin/env", sign...))
	verify := func(key, ref string) (string, error) {
		return cosign("verify", "--key", key, "--insecure-ignore-tlog", ref)
	}
	for _, ref := range refs {
		succeeds(verify("cosign.pub", ref))
	}
	verifyBlob := func() (string, error) {
		return cosign("verify-blob", "--key", "cosign.pub", "--insecure-ignore-tlog", "--bundle", "SHA256SUMS.sigstore.json", "SHA256SUMS")
	}
	succeeds(verifyBlob())
	must(t, os.WriteFile(filepath.Join(dir, "SHA256SUMS"), append(sums, '\n'), 0o644))
	if text, err := verifyBlob(); err == nil {
		t.Errorf("changed checksums are verified, want an error: %s", text)
	}
	succeeds(cosign("generate-key-pair", "--output-key-prefix", "other"))
	for _, ref := range refs {
		if text, err := verify("other.pub", ref); err == nil {
			t.Errorf("%s is verified with another key, want an error: %s", ref, text)
		}
	}
}
