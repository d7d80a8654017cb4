package main

import (
	"fmt"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// imageName is the name of the image in manifests.
const imageName = "ghcr.io/generic-dp/generic-dp"

// platform is a target platform: its name in files, and its names in OCI.
type platform struct{ name, arch, variant string }

// platforms are the platforms of releases.
var platforms = []platform{
	{name: "amd64", arch: "amd64"},
	{name: "arm64", arch: "arm64"},
	{name: "arm7", arch: "arm", variant: "v7"},
}

// image writes an OCI image of the programs, for all platforms, as an OCI image layout
// (image-spec, image-layout.md). The output directory has an archive with the programs of each platform.
// The index is annotated with the image's name in manifests.
func (r *release) image() error {
	index := mutate.IndexMediaType(v1.ImageIndex(empty.Index), types.OCIImageIndex)
	for _, p := range platforms {
		img, err := r.platformImage(p)
		if err != nil {
			return fmt.Errorf("image for %s: %w", p.name, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.arch, Variant: p.variant}},
		})
	}
	l, err := layout.Write(filepath.Join(r.out, "image"), empty.Index)
	if err != nil {
		return err
	}
	return l.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          imageName + ":" + r.version,
		"org.opencontainers.image.ref.name": r.version,
	}))
}

// platformImage contains the binaries only. It runs as uid 0 without capabilities: the
// kubelet's sockets belong to root.
func (r *release) platformImage(p platform) (v1.Image, error) {
	layer, err := tarball.LayerFromFile(filepath.Join(r.out, p.name+".tar"), tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if img, err = mutate.AppendLayers(img, layer); err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, &v1.ConfigFile{
		OS: "linux", Architecture: p.arch, Variant: p.variant,
		RootFS: config.RootFS,
		Config: v1.Config{
			User: "0:0", Entrypoint: []string{"/generic-dp"}, Cmd: []string{"serve"},
			Labels: map[string]string{
				"org.opencontainers.image.title":       "generic-dp",
				"org.opencontainers.image.description": "configuration-driven Kubernetes device plugin for arbitrary host devices",
				"org.opencontainers.image.version":     r.version,
				"org.opencontainers.image.source":      "https://github.com/generic-dp/generic-dp",
				"org.opencontainers.image.licenses":    "Apache-2.0",
			},
		},
	})
}
