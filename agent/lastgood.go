package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/generic-dp/generic-dp/config"
	"github.com/generic-dp/generic-dp/internal/atomicfile"
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

// source is where the configuration comes from and what it may ask for.
type source struct {
	path     string // file or directory
	stateDir string // where the last good copy is
	cdiDir   string
	allow    config.Allow
	cdiOnly  bool // see Options
	inPod    bool
}

// read reads the text of the configuration.
func (s source) read() ([]config.File, error) {
	files, err := config.Read(s.path)
	if err != nil {
		return nil, withHint(fmt.Errorf("--config: %w", err), "config", s.inPod)
	}
	return files, nil
}

// check is what every configuration has to pass before it is served, the last
// good one too: what was allowed to it may be so no longer.
func (s source) check(files []config.File) (*config.Config, error) {
	parse := config.Parse
	if s.cdiOnly {
		parse = config.ParseForCDI
	}
	cfg, err := parse(files...)
	if err != nil {
		return nil, err
	}
	if err := cfg.Check(s.allow); err != nil {
		return nil, err
	}
	if usesCDI(cfg) {
		if err := writable("cdi-dir", s.cdiDir); err != nil {
			return nil, withHint(err, "cdi-dir", s.inPod)
		}
	}
	return cfg, nil
}

// load reads the configuration and checks all of it. If it is broken and a last
// good copy is kept, that is returned in its place: a running node does not lose
// its devices to a typing error, not even over a restart.
func (s source) load() (cfg *config.Config, first reading, err error) {
	first.files, first.err = s.read()
	if first.err == nil {
		first.config, first.err = s.check(first.files)
	}
	if first.err == nil {
		return first.config, first, s.keep(first.files)
	}
	kept, err := s.lastGood()
	if err != nil {
		return nil, first, first.err
	}
	return kept, first, nil
}

func (s source) lastGood() (*config.Config, error) {
	data, err := os.ReadFile(filepath.Join(s.stateDir, lastGoodName))
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
	return s.check(files)
}

// keep makes files the last good copy.
func (s source) keep(files []config.File) error {
	kept := make([]keptFile, len(files))
	for i, f := range files {
		kept[i] = keptFile{f.Name, string(f.Data)}
	}
	data, err := json.MarshalIndent(kept, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(s.stateDir, lastGoodName), data, 0o600); err != nil {
		return fmt.Errorf("--state-dir: %w", err)
	}
	return nil
}

// usesCDI reports whether any resource hands over CDI names of this program.
func usesCDI(cfg *config.Config) bool {
	for _, r := range cfg.Resources {
		if r.Container.CDI {
			return true
		}
	}
	return false
}
