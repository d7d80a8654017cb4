package main

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/registry"
)

// chartPath is the chart's repository in a registry.
const chartPath = "generic-dp/charts/generic-dp"

func (r *release) chartVersion() string { return strings.TrimPrefix(r.version, "v") }
func (r *release) chartArchive() string {
	return filepath.Join(r.out, "generic-dp-"+r.chartVersion()+".tgz")
}

// packChart archives the Helm chart. The release must have the version in Chart.yaml, which
// the documentation and the chart's image name.
func (r *release) packChart(context.Context) ([]string, error) {
	chart, err := loader.Load(r.chart(""))
	if err != nil {
		return nil, err
	}
	if chart.AppVersion() != r.version || chart.Metadata.Version != r.chartVersion() {
		return nil, fmt.Errorf("%s: version %s, appVersion %s: want %s, %s", r.chart("Chart.yaml"), chart.Metadata.Version, chart.AppVersion(), r.chartVersion(), r.version)
	}
	files, err := readDir(r.chart(""), chart.Name())
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(r.source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	files = append(files, file{
		name: chart.Name() + "/LICENSE",
		mode: 0o644,
		data: license,
	})
	archive, err := tarGzip(gzip.DefaultCompression, files)
	if err != nil {
		return nil, err
	}
	return []string{r.chartArchive()}, os.WriteFile(r.chartArchive(), archive, 0o644)
}

// publish pushes the image and the chart of the output directory, and prints their digests
// to sign: by then, a tag may have moved.
func (r *release) publish(ctx context.Context, host string, stdout io.Writer) error {
	image, err := r.pushImage(ctx, host)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	chart, err := r.pushChart(host)
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	_, err = fmt.Fprintf(stdout, "image=%s\nchart=%s\n", image, chart)
	return err
}

func (r *release) pushImage(ctx context.Context, host string) (string, error) {
	tag, err := name.NewTag(host + "/" + imagePath + ":" + r.version)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "generic-dp-image-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := untar(filepath.Join(r.out, imageArchive), dir); err != nil {
		return "", err
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return "", err
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		return "", err
	}
	digest := manifest.Manifests[0].Digest
	index, err := top.ImageIndex(digest)
	if err != nil {
		return "", err
	}
	err = remote.WriteIndex(tag, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	return tag.Digest(digest.String()).String(), err
}

func (r *release) pushChart(host string) (string, error) {
	at, err := name.NewRegistry(host)
	if err != nil {
		return "", err
	}
	options := []registry.ClientOption{registry.ClientOptWriter(io.Discard)}
	if at.Scheme() == "http" { // on this machine
		options = append(options, registry.ClientOptPlainHTTP())
	}
	client, err := registry.NewClient(options...)
	if err != nil {
		return "", err
	}
	archive, err := os.ReadFile(r.chartArchive())
	if err != nil {
		return "", err
	}
	repository := host + "/" + chartPath
	// With the real time, every push would have another digest.
	pushed, err := client.Push(archive, repository+":"+r.chartVersion(), registry.PushOptCreationTime(time.Unix(0, 0).UTC().Format(time.RFC3339)))
	if err != nil {
		return "", err
	}
	return repository + "@" + pushed.Manifest.Digest, nil
}
