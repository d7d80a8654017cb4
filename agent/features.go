package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/generic-dp/generic-dp/internal/atomicfile"
)

// featureName is the file for the local source of Node Feature Discovery, which makes node
// labels of it: a line NAME=VALUE each. It reads every file whose name has no dot in front,
// so that the file is written under such a name; and none above featureLimit.
const (
	featureName  = "generic-dp"
	featureLimit = 64 << 10
)

// features are the labels of the node: the number of healthy devices by resource.
func (s set) features() []byte {
	text := []byte("# healthy devices by resource\n")
	for _, m := range s {
		healthy := 0
		for _, e := range m.now.Load().entries {
			if e.Healthy {
				healthy++
			}
		}
		if healthy > 0 {
			text = fmt.Appendf(text, "%s=%d\n", m.Name, healthy)
		}
	}
	return text
}

// prepareFeatures returns what writes the feature file, once it is known what the node has:
// during a start pods would be sent elsewhere.
func (l *loop) prepareFeatures() (write func() error) {
	dir := l.options.Paths.NFDDir
	if dir == "" || !l.calm {
		return func() error { return nil }
	}
	text := l.members().features()
	return func() error { return writeFeatureFile(dir, text) }
}

func writeFeatureFile(dir string, text []byte) error {
	if len(text) > featureLimit {
		return fmt.Errorf("%d bytes for Node Feature Discovery: want at most %d", len(text), featureLimit)
	}
	path, hidden := featureFiles(dir)
	if have, err := atomicfile.Read(path, featureLimit); err == nil && bytes.Equal(have, text) {
		return nil
	}
	if err := atomicfile.Write(hidden, text, 0o644); err != nil {
		return err
	}
	return os.Rename(hidden, path)
}

// removeFeatureFile removes the feature file.
func removeFeatureFile(dir string) error {
	path, hidden := featureFiles(dir)
	return errors.Join(atomicfile.Remove(path), atomicfile.Remove(hidden))
}

func featureFiles(dir string) (path, hidden string) {
	return filepath.Join(dir, featureName), filepath.Join(dir, "."+featureName)
}
