package kubelettest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
)

// checkpointName is the name of the checkpoint in the device plugin directory.
const checkpointName = "kubelet_internal_checkpoint"

// pod identifies a pod by namespace and name, which a later one may have again.
type pod struct{ namespace, name string }

// Backup is a copy of the kubelet's checkpoints, of device plugins and of claims.
type Backup struct {
	admitted map[Request]*Admission
	uids     map[pod]string
	claims   map[string]*preparedClaim
}

// Backup returns a copy of the checkpoints as of now.
func (k *Kubelet) Backup() *Backup {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &Backup{
		admitted: maps.Clone(k.admitted),
		uids:     maps.Clone(k.uids),
		claims:   maps.Clone(k.claims),
	}
}

// RestartFrom kills the kubelet, replaces its checkpoints by a backup, nil to delete them, and
// starts it again: it has forgotten the pods that the backup does not have.
func (k *Kubelet) RestartFrom(b *Backup) error {
	k.Kill()
	if b == nil {
		b = &Backup{}
	}
	var err error
	k.update(func() {
		k.admitted = map[Request]*Admission{}
		maps.Copy(k.admitted, b.admitted)
		k.uids = map[pod]string{}
		maps.Copy(k.uids, b.uids)
		k.claims = map[string]*preparedClaim{}
		maps.Copy(k.claims, b.claims)
		k.freeRemoved()
		if len(b.admitted) > 0 {
			k.writeCheckpoint()
			return
		}
		err = os.Remove(filepath.Join(k.opts.Dir, checkpointName))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	})
	return errors.Join(err, k.Start())
}

// UID returns the UID of a pod that was admitted last by this name, empty if there is none.
func (k *Kubelet) UID(namespace, name string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.uids[pod{namespace, name}]
}

// identify gives a pod of a request a UID, if it has none; k.mu is locked.
func (k *Kubelet) identify(c Request) {
	p := pod{c.Namespace, c.Pod}
	if k.uids[p] == "" {
		k.pods++
		format := "%08x-0000-4000-8000-000000000000"
		if c.Static {
			format = "%032x"
		}
		k.uids[p] = fmt.Sprintf(format, k.pods)
	}
}

// The parts of the kubelet's file.
type (
	checkpointEntry struct {
		PodUID        string
		ContainerName string
		ResourceName  string
		DeviceIDs     map[int64][]string
		AllocResp     []byte
	}
	checkpointData struct {
		PodDeviceEntries  []checkpointEntry
		RegisteredDevices map[string][]string
	}
	checkpointFile struct {
		Data     checkpointData
		Checksum uint64
	}
)

// entry is the part of the checkpoint about an admitted request; k.mu is locked.
func (k *Kubelet) entry(c Request) checkpointEntry {
	return checkpointEntry{
		PodUID:        k.uids[pod{c.Namespace, c.Pod}],
		ContainerName: c.Container,
		ResourceName:  c.Resource,
		DeviceIDs:     map[int64][]string{-1: k.admitted[c].IDs},
		AllocResp:     []byte("response"),
	}
}

// freeRemoved frees the devices of removed pods. Like the kubelet (UpdateAllocatedDevices in
// pkg/kubelet/cm/devicemanager/manager.go), it is called before an allocation and before an answer
// of PodResources, but not before the checkpoint is written; k.mu is locked.
func (k *Kubelet) freeRemoved() { k.removed = nil }

// writeCheckpoint replaces the file, as the kubelet does after every allocation and list,
// and not when it frees the devices of a pod; k.mu is locked.
func (k *Kubelet) writeCheckpoint() {
	data := checkpointData{RegisteredDevices: map[string][]string{}}
	for _, c := range slices.SortedFunc(maps.Keys(k.admitted), compareRequests) {
		data.PodDeviceEntries = append(data.PodDeviceEntries, k.entry(c))
	}
	data.PodDeviceEntries = append(data.PodDeviceEntries, k.removed...)
	for name, r := range k.resources {
		data.RegisteredDevices[name] = slices.Sorted(maps.Keys(r.healthy()))
	}
	text, err := json.Marshal(checkpointFile{Data: data})
	if err != nil {
		panic(err) // plain data
	}
	path := filepath.Join(k.opts.Dir, checkpointName)
	temp := filepath.Join(k.opts.Dir, "."+checkpointName+".tmp")
	err = os.WriteFile(temp, text, 0o600)
	if err == nil {
		_ = os.Rename(temp, path) // the test ends
	}
}
