// Package exclusive records which exclusive devices containers got, so that no container gets a
// device with conflicting places meanwhile, see device.Conflict.
//
// The kubelet lists the holder of a device only after its Allocate call has returned, and the ledger
// learns that later still. Until then a grant in this package stands for the holder. Each grant is a
// file in the run directory, so that it outlives the program: during an update one instance grants a
// device, and the next one is asked for its rival. A call first writes its own file and then reads
// the others: of two calls at the same time, at least one sees the other.
//
// A grant ends when a complete answer of the kubelet, asked for long enough after the grant, does
// not have the device: its pod has ended, or was never admitted.
package exclusive

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/sys/atomicfile"
)

// Margin is the minimum time from a grant to the question of an answer that ends it. The kubelet
// records a device within microseconds after the Allocate call has returned, unless its node is
// overloaded.
const Margin = time.Minute

// maxSize is the maximum size of the file of a grant, in bytes. A pool has the places of all its
// members.
const maxSize = 1 << 20

// Device is an exclusive device that a container gets.
type Device struct {
	ID string `json:"id"`
	// Resource is the name of its resource in the ledger.
	Resource string `json:"resource"`
	// Places are what it uses of the host now.
	Places []string `json:"places"`
}

// Registry has the grants of all instances that use one directory. It is safe for concurrent use.
type Registry struct {
	dir string
	// boot is the ID of this boot. No container survives a reboot, but the directory may.
	boot string
	now  func() time.Time

	mu sync.Mutex
	// grants are the known grants by the names of their files.
	grants map[string]grant
}

// grant is the content of a file.
type grant struct {
	Device
	Boot string `json:"boot"`
	// seen is when this instance granted the device, or first saw the grant of another one. The
	// clock of an earlier instance may have been another one.
	seen time.Time
}

// New returns the registry of a directory, which is made with the first grant.
func New(dir, boot string, now func() time.Time) *Registry {
	return &Registry{
		dir:    dir,
		boot:   boot,
		now:    now,
		grants: map[string]grant{},
	}
}

// Reserve grants devices to a container, all or none. It is an error if a grant of another device
// conflicts with one of them. The caller calls cancel if the container does not get them after all.
func (r *Registry) Reserve(devices []Device) (cancel func(), err error) {
	for i, d := range devices {
		for _, other := range devices[:i] {
			if d.ID != other.ID && device.Conflict(d.Places, other.Places) {
				return nil, fmt.Errorf("devices %q and %q exclude each other, and a container cannot have both", other.ID, d.ID)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, d := range devices {
		name, err := r.write(d)
		if err != nil {
			r.remove(names)
			return nil, fmt.Errorf("device %q is exclusive, and its use cannot be recorded: %w", d.ID, err)
		}
		names = append(names, name)
	}
	for _, d := range devices {
		if err := r.conflict(d); err != nil {
			r.remove(names)
			return nil, err
		}
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.remove(names)
	}, nil
}

// Conflict returns why a device cannot be allocated: a grant of another device conflicts with it.
func (r *Registry) Conflict(d Device) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.conflict(d)
}

// conflict is Conflict. The caller holds the lock.
func (r *Registry) conflict(d Device) error {
	if err := r.refresh(); err != nil {
		return fmt.Errorf("device %q is exclusive, and it is not known whether it is in use: %w", d.ID, err)
	}
	// The error names the same holder each time.
	for _, name := range slices.Sorted(maps.Keys(r.grants)) {
		other := r.grants[name]
		if other.ID != d.ID && device.Conflict(d.Places, other.Places) {
			return Held(d.ID, other.ID, other.Resource)
		}
	}
	return nil
}

// Held is the error about a device whose rival is held.
func Held(id, rival, resource string) error {
	return fmt.Errorf("device %q is held as %s through %s: it can be allocated when that container has ended", id, rival, resource)
}

// Grants returns the devices that were granted, by ID. An error means that more devices may have
// been granted.
func (r *Registry) Grants() (map[string]ledger.Grant, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.refresh()
	grants := map[string]ledger.Grant{}
	for _, name := range slices.Sorted(maps.Keys(r.grants)) {
		g := r.grants[name]
		all := slices.Concat(grants[g.ID].Places, g.Places)
		slices.Sort(all)
		grants[g.ID] = ledger.Grant{
			Resource: g.Resource,
			Places:   slices.Compact(all),
		}
	}
	return grants, err
}

// Release ends the grants of devices that no container holds, according to a complete answer that
// the kubelet was asked for at a time.
func (r *Registry) Release(asked time.Time, isHeld func(id string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	latest := map[string]time.Time{}
	isOld := func(g grant) bool {
		return !asked.Before(g.seen.Add(Margin))
	}
	for _, g := range r.grants {
		if isOld(g) && g.seen.After(latest[g.ID]) {
			latest[g.ID] = g.seen
		}
	}
	var ended []string
	for name, g := range r.grants {
		if !isOld(g) {
			continue
		}
		// One grant of a held device is enough.
		isRepeated := g.seen.Before(latest[g.ID])
		if isRepeated || !isHeld(g.ID) {
			ended = append(ended, name)
		}
	}
	r.remove(ended)
}

// write writes the file of a new grant and returns its name. The caller holds the lock.
func (r *Registry) write(d Device) (name string, err error) {
	g := grant{
		Device: d,
		Boot:   r.boot,
		seen:   r.now(),
	}
	text, err := json.Marshal(g)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return "", err
	}
	// A name is never used again, so that no instance removes the grant of another one.
	name = strconv.FormatInt(time.Now().UnixNano(), 36) + "-" + strconv.FormatUint(rand.Uint64(), 36)
	if err := atomicfile.Write(filepath.Join(r.dir, name), text, 0o600); err != nil {
		_ = atomicfile.Remove(filepath.Join(r.dir, name))
		return "", err
	}
	r.grants[name] = g
	return name, nil
}

// remove ends grants. A file that cannot be removed stays a grant. The caller holds the lock.
func (r *Registry) remove(names []string) {
	for _, name := range names {
		if atomicfile.Remove(filepath.Join(r.dir, name)) == nil {
			delete(r.grants, name)
		}
	}
}

// refresh reads the grants of other instances, and forgets the ones that they have ended. The caller
// holds the lock.
func (r *Registry) refresh() error {
	files, err := os.ReadDir(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		files = nil
	} else if err != nil {
		return err
	}
	var errs []error
	exists := map[string]bool{}
	for _, f := range files {
		if !f.Type().IsRegular() {
			continue // not a grant
		}
		name := f.Name()
		exists[name] = true
		_, isKnown := r.grants[name]
		// Another instance is writing a temporary file. It reads the other grants afterwards.
		if isKnown || strings.HasSuffix(name, atomicfile.TempSuffix) {
			continue
		}
		errs = append(errs, r.read(name))
	}
	for name := range r.grants {
		if !exists[name] {
			delete(r.grants, name)
		}
	}
	return errors.Join(errs...)
}

// read reads the grant of another instance. The caller holds the lock.
func (r *Registry) read(name string) error {
	path := filepath.Join(r.dir, name)
	text, err := atomicfile.Read(path, maxSize)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // ended meanwhile
	}
	if err != nil {
		return err
	}
	var g grant
	if json.Unmarshal(text, &g) != nil {
		// Grants are written atomically, so it is not a grant. It would refuse every device.
		r.remove([]string{name})
		return nil
	}
	g.seen = r.now()
	if g.Boot != r.boot {
		r.remove([]string{name})
		return nil
	}
	r.grants[name] = g
	return nil
}
