package agent

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/generic-dp/generic-dp/internal/sys/files"
)

// instance identifies an instance to an administrator who finds two of them. In a pod, every PID is
// 1, and the host name is the name of the pod.
type instance struct {
	// PID is 0 in the zero value, which stands for an unknown instance.
	PID      int    `json:"pid"`
	Hostname string `json:"hostname"`
	// Listen is the address of metrics and probes, empty if there is none.
	Listen string `json:"listen"`
}

// thisInstance returns the identity of this process.
func thisInstance(o Options) instance {
	hostname, _ := os.Hostname() // an empty name only shortens a log line
	return instance{
		PID:      os.Getpid(),
		Hostname: hostname,
		Listen:   o.Listen,
	}
}

// attributes returns the identity for a log line.
func (i instance) attributes() []any {
	if i == (instance{}) {
		return nil // an older version leaves no identity
	}
	return []any{"pid", i.PID, "hostname", i.Hostname, "listen", i.Listen}
}

// String names the instance in a sentence.
func (i instance) String() string {
	return fmt.Sprintf("with PID %d on %s", i.PID, i.Hostname)
}

// readInstance reads the identity in a file. It returns the zero value if there is none. It is also
// the zero value if the file is too long, or is not JSON.
func readInstance(path string) instance {
	var i instance
	text, err := files.Read(path, files.MaxSize)
	if err == nil {
		_ = json.Unmarshal(text, &i) // an unreadable identity is none
	}
	return i
}

// writeTo writes the identity over the content of an open file. The locks are on the file itself, so
// it cannot be replaced. Only messages need the identity, so that an error does not matter.
func (i instance) writeTo(file *os.File) {
	text, err := json.Marshal(i)
	if err != nil {
		return
	}
	// A reader may find an empty file in between, and then knows no identity.
	_ = file.Truncate(0)
	_, _ = file.WriteAt(text, 0)
}
