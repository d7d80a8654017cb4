package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/generic-dp/generic-dp/config"
)

// lastGoodName is the file in the state directory that keeps the text of the
// last configuration that was in order. One file, so that it is replaced in
// one rename.
const lastGoodName = "last-good-config.json"

// keptFile is one file of the copy: text, so that it can be read in need.
type keptFile struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// loadConfig reads the configuration at path. If that is broken and a last
// good copy is kept in stateDir, the copy is returned together with the
// problems: a running node does not lose its devices to a typing error, not
// even over a restart.
func loadConfig(path, stateDir string) (cfg *config.Config, broken error, err error) {
	files, err := config.Read(path)
	if err != nil {
		err = fmt.Errorf("--config: %w", err)
	} else {
		cfg, err = config.Parse(files...)
	}
	if err == nil {
		return cfg, nil, keepConfig(files, stateDir)
	}
	kept, keptErr := keptConfig(stateDir)
	if keptErr != nil {
		return nil, nil, err
	}
	return kept, err, nil
}

func keptConfig(stateDir string) (*config.Config, error) {
	data, err := os.ReadFile(filepath.Join(stateDir, lastGoodName))
	if err != nil {
		return nil, err
	}
	var kept []keptFile
	if err := json.Unmarshal(data, &kept); err != nil {
		return nil, fmt.Errorf("%s: %w", lastGoodName, err)
	}
	files := make([]config.File, len(kept))
	for i, k := range kept {
		files[i] = config.File{Name: k.Name, Data: []byte(k.Text)}
	}
	return config.Parse(files...)
}

func keepConfig(files []config.File, stateDir string) error {
	kept := make([]keptFile, len(files))
	for i, f := range files {
		kept[i] = keptFile{f.Name, string(f.Data)}
	}
	data, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(stateDir, lastGoodName)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	return os.Rename(path+".new", path)
}

// logBroken says every problem of a broken configuration on a line of its own.
func logBroken(log *slog.Logger, path string, broken error) {
	log.Error("configuration is broken: the last good one is served", "config", path)
	for line := range strings.SplitSeq(strings.TrimRight(broken.Error(), "\n"), "\n") {
		log.Error("configuration problem", "config", path, "problem", strings.TrimSpace(line))
	}
}
