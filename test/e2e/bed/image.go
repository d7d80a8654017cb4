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

// Image is the only image of a bed: the tool at /tool. As a sandbox it pauses.
const Image = "localhost/generic-dp-e2e:1"

// writeImage writes the image as a docker-archive, which a runtime imports without a
// registry: a tar of a manifest, a configuration, and a tar per layer.
func writeImage(file, tool string) error {
	program, err := os.ReadFile(tool)
	if err != nil {
		return err
	}
	layer, err := tarOf(entry{"tool", program, 0o755})
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
		entry{"manifest.json", manifest, 0o644},
		entry{"config.json", config, 0o644},
		entry{"layer.tar", layer, 0o644},
	)
	if err != nil {
		return err
	}
	return os.WriteFile(file, archive, 0o644)
}

type entry struct {
	name string
	data []byte
	mode int64
}

func tarOf(entries ...entry) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buf.Bytes(), err
}
