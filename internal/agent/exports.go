package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/ledger"
	"github.com/generic-dp/generic-dp/internal/sys/atomicfile"
)

// deviceInfos are the files of the device information specification (Network Plumbing
// Working Group, version 1.1.0), one for each network function. Multus copies their content
// into the network status of a pod, from which KubeVirt and OVN-Kubernetes take the
// function of each network.
type deviceInfos struct {
	paths Paths
	files map[string][]byte // own files by path; nil before they are read
}

const deviceInfoSuffix = "-device.json"

// deviceInfo is one file. All device plugins share the directory: Writer, not part of the
// specification, names the owner.
type deviceInfo struct {
	Type    string         `json:"type"`
	Version string         `json:"version"`
	PCI     *pciDeviceInfo `json:"pci,omitempty"`
	VDPA    *pciDeviceInfo `json:"vdpa,omitempty"`
	Writer  string         `json:"writer"`
}

type pciDeviceInfo struct {
	Parent  string `json:"parent-device,omitempty"`
	Driver  string `json:"driver,omitempty"`
	Path    string `json:"path,omitempty"`
	Address string `json:"pci-address"`
	PF      string `json:"pf-pci-address,omitempty"`
}

// newDeviceInfo describes a network function, nil for other hardware: the specification has
// no sub-functions.
func newDeviceInfo(h *device.Hardware) *deviceInfo {
	if h == nil || h.PCI == nil || h.PCI.SRIOV == "sf" || !strings.HasPrefix(h.PCI.Class, "02") {
		return nil
	}
	of := &pciDeviceInfo{Address: h.PCI.Address, PF: h.PCI.PF}
	i := slices.IndexFunc(h.Nodes, func(n *device.Node) bool { return strings.HasPrefix(n.Path, "/dev/vhost-vdpa-") })
	if i < 0 {
		return &deviceInfo{Type: "pci", Version: "1.1.0", PCI: of}
	}
	of.Parent, of.Driver, of.Path = path.Base(path.Dir(h.Nodes[i].SysPath)), "vhost", h.Nodes[i].Path
	return &deviceInfo{Type: "vdpa", Version: "1.1.0", VDPA: of}
}

// sync makes the directory hold the files of the present devices, and no others of this
// installation. It returns the first error: others usually have the same cause.
func (d *deviceInfos) sync(v *View, out ledger.Output) (err error) {
	if d.paths.DeviceInfoDir == "" {
		return nil
	}
	if d.files == nil {
		if d.files, err = d.own(); err != nil {
			return fmt.Errorf("--device-info-dir: %w", err)
		}
	}
	want := map[string][]byte{}
	for _, r := range out.Resources {
		name, byDRA := nameOf(r.Name)
		for _, e := range r.Devices {
			info := newDeviceInfo(v.hardware(e.Offer.Hardware))
			if byDRA || !e.Present || info == nil {
				continue
			}
			info.Writer = d.writer()
			text, _ := json.Marshal(info) // never fails
			want[filepath.Join(d.paths.DeviceInfoDir, strings.ReplaceAll(name, "/", "-")+"-"+e.Offer.ID+deviceInfoSuffix)] = text
		}
	}
	all := maps.Clone(d.files)
	maps.Copy(all, want)
	for _, file := range slices.Sorted(maps.Keys(all)) {
		var failed error
		if text, wanted := want[file]; !wanted {
			if failed = atomicfile.Remove(file); failed == nil {
				delete(d.files, file)
			}
		} else if !bytes.Equal(d.files[file], text) {
			if failed = atomicfile.Write(file, text, 0o644); failed == nil {
				d.files[file] = text
			}
		}
		if failed != nil && err == nil {
			err = fmt.Errorf("--device-info-dir: %w", failed)
		}
	}
	return err
}

// own reads the files of this installation.
func (d *deviceInfos) own() (map[string][]byte, error) {
	entries, err := os.ReadDir(d.paths.DeviceInfoDir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	own := map[string][]byte{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), deviceInfoSuffix) {
			continue
		}
		file := filepath.Join(d.paths.DeviceInfoDir, e.Name())
		text, err := atomicfile.Read(file, 4<<10) // more than a file ever has
		var info deviceInfo
		if err == nil && json.Unmarshal(text, &info) == nil && info.Writer == d.writer() {
			own[file] = text
		}
	}
	return own, err
}

// writer marks the files of this installation.
func (d *deviceInfos) writer() string { return cmp.Or(d.paths.specOwner(), "generic-dp") }

// featureName is the file for the local source of Node Feature Discovery, which makes a
// node label of each line NAME=VALUE. It skips files above featureLimit and names with a
// leading dot, under which the file is written before its rename.
const (
	featureName  = "generic-dp"
	featureLimit = 64 << 10
)

// features are the labels of the node: the number of healthy devices by resource.
func (s set) features() []byte {
	text := []byte("# healthy devices by resource\n")
	for _, r := range s {
		healthy := 0
		for _, e := range r.now.Load().entries {
			if e.Healthy {
				healthy++
			}
		}
		if healthy > 0 {
			text = fmt.Appendf(text, "%s=%d\n", r.Name, healthy)
		}
	}
	return text
}

// prepareFeatures returns the write of the feature file, a no-op until Settled: missing
// labels at a start would send pods elsewhere.
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

func featureFiles(dir string) (path, hidden string) {
	return filepath.Join(dir, featureName), filepath.Join(dir, "."+featureName)
}
