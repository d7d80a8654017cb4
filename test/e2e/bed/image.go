package bed

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

// Image is the only image of a bed: the tool at /tool, which is also its ls. As a sandbox it
// pauses.
const Image = "localhost/generic-dp-e2e:1"

// writeImage writes the image as a docker-archive, which a runtime imports without a
// registry: a tar of a manifest, a configuration, and a tar per layer.
func writeImage(file, tool string) error {
	program, err := os.ReadFile(tool)
	if err != nil {
		return err
	}
	layer, err := tarOf(
		entry{name: "tool", data: program, mode: 0o755},
		entry{name: "bin/ls", link: "tool"},
	)
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{"/tool"}, "Cmd": []string{"pause"}},
		"rootfs": map[string]any{
			"type":     "layers",
			"diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))},
		},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{{
		"Config":   "config.json",
		"RepoTags": []string{Image},
		"Layers":   []string{"layer.tar"},
	}})
	if err != nil {
		return err
	}
	archive, err := tarOf(
		entry{name: "manifest.json", data: manifest, mode: 0o644},
		entry{name: "config.json", data: config, mode: 0o644},
		entry{name: "layer.tar", data: layer, mode: 0o644},
	)
	if err != nil {
		return err
	}
	return os.WriteFile(file, archive, 0o644)
}

// entry is a file, or a hard link to an earlier one.
type entry struct {
	name string
	data []byte
	mode int64
	link string
}

func tarOf(entries ...entry) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data))}
		if e.link != "" {
			header.Typeflag = tar.TypeLink
			header.Linkname = e.link
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}
