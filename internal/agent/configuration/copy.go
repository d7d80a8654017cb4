package configuration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// goodName is the file in the state directory with the text of the last good configuration. It is one
// file, so that it is replaced atomically.
const goodName = "last-good-config.json"

// FileNames are the names of the files in the state directory.
func FileNames() []string { return []string{goodName, markName} }

// copiedFile is one file of the copy, as readable text.
type copiedFile struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// LastGood returns the copy of the last good configuration. It returns nil if there is none, or if it
// is unusable.
func LastGood(stateDir string) []config.File {
	var copied []copiedFile
	if files.ReadJSON(filepath.Join(stateDir, goodName), files.MaxSize, &copied) != nil {
		return nil
	}
	var good []config.File
	for _, f := range copied {
		good = append(good, config.File{Name: f.Name, Data: []byte(f.Text)})
	}
	return good
}

// writeCopy makes a configuration the last good one on disk.
func writeCopy(stateDir string, served []config.File) error {
	var copied []copiedFile
	for _, f := range served {
		copied = append(copied, copiedFile{Name: f.Name, Text: string(f.Data)})
	}
	text, err := json.MarshalIndent(copied, "", "  ")
	if err == nil {
		err = os.MkdirAll(stateDir, 0o700)
	}
	if err == nil {
		err = files.Write(filepath.Join(stateDir, goodName), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	return nil
}
