package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/generic-dp/generic-dp/internal/atomicfile"
)

const (
	stateFile    = "state.json"
	stateVersion = 1
	// maxStateSize bounds the file in bytes: a device takes some 100, however
	// many slots it has, and so does a node or a decision.
	maxStateSize = 4 << 20
)

// Files are the names of what Save and Load may leave in a directory.
func Files() []string {
	return []string{stateFile, stateFile + ".bad", stateFile + atomicfile.TempSuffix}
}

// Persisted is all that outlives a restart.
type Persisted struct {
	// Boot is the boot that it was written in, see State.
	Boot      string       `json:"boot,omitempty"`
	Decisions Decisions    `json:"decisions"`
	Resources []Remembered `json:"resources,omitempty"`
	Injected  Injected     `json:"injected,omitempty"`
}

// Injected are the nodes that links and CDI entries lead to: the ID of each
// (device.NodeID), by the ID of the listed device and the path. They tell whether a
// path still leads to what a container was given, also where the configuration, and
// with it what the ID of the device is made of, has changed since.
type Injected map[string]map[string]string

// Add takes down a node. One without an ID has no hardware and needs no memory.
func (i Injected) Add(device, path, node string) {
	if node == "" {
		return
	}
	if i[device] == nil {
		i[device] = map[string]string{}
	}
	i[device][path] = node
}

type stateText struct {
	Version int `json:"version"`
	Persisted
}

// Equal reports whether p and q make the same file.
func (p Persisted) Equal(q Persisted) bool {
	a, errA := p.text()
	b, errB := q.text()
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

func (p Persisted) text() ([]byte, error) {
	text, err := json.Marshal(stateText{stateVersion, p})
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

// Load reads what Save has written to dir. A missing file is an empty
// Persisted. So is one that can't be used, with an error; where it could be
// read, but makes no sense, it is kept aside as state.json.bad.
func Load(dir string) (Persisted, error) {
	path := filepath.Join(dir, stateFile)
	p, err := load(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	err = fmt.Errorf("reading the state: %q: %w", path, err)
	var bad *badStateError
	if errors.As(err, &bad) {
		if rename := os.Rename(path, path+".bad"); rename != nil {
			return Persisted{}, errors.Join(err, fmt.Errorf("keeping it aside: %w", rename))
		}
	}
	return Persisted{}, err
}

// badStateError is a file that makes no sense.
type badStateError struct{ err error }

func (e *badStateError) Error() string { return e.err.Error() }
func (e *badStateError) Unwrap() error { return e.err }

func load(path string) (Persisted, error) {
	f, err := os.Open(path)
	if err != nil {
		return Persisted{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxStateSize+1))
	if err != nil {
		return Persisted{}, err
	}
	if len(text) > maxStateSize {
		return Persisted{}, &badStateError{fmt.Errorf("more than %d bytes", maxStateSize)}
	}
	var s stateText
	if err := json.Unmarshal(text, &s); err != nil {
		return Persisted{}, &badStateError{err}
	}
	if s.Version != stateVersion {
		return Persisted{}, &badStateError{fmt.Errorf("version %d: want %d", s.Version, stateVersion)}
	}
	return s.Persisted, nil
}

// Save writes p to dir, which it makes where it is missing, so that a reader
// finds the old file or the new one whatever happens. One process at a time
// may save to a directory.
func Save(dir string, p Persisted) error {
	path := filepath.Join(dir, stateFile)
	text, err := p.text()
	switch {
	case err != nil:
	case len(text) > maxStateSize:
		err = fmt.Errorf("%d bytes: want at most %d", len(text), maxStateSize)
	default:
		if err = os.MkdirAll(dir, 0o700); err == nil {
			err = atomicfile.Write(path, text, 0o600)
		}
	}
	if err != nil {
		return fmt.Errorf("writing the state: %q: %w", path, err)
	}
	return nil
}
