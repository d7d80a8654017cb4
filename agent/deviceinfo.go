package agent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/device"
	"github.com/generic-dp/generic-dp/internal/atomicfile"
	"github.com/generic-dp/generic-dp/ledger"
)

// deviceInfos are the files of the device information specification (Network Plumbing
// Working Group, version 1.1.0), one for each network function. Multus copies what is in
// them into the network status of a pod, from which KubeVirt and OVN-Kubernetes take the
// function of each network.
type deviceInfos struct {
	paths Paths
	files map[string][]byte // the own ones by path; nil before they are read
}

// deviceInfoLimit is more than a file ever has.
const deviceInfoLimit = 4 << 10

// deviceInfo is a file. The directory is that of all device plugins: Writer, which is no
// part of the specification, says whose it is.
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
// installation.
func (d *deviceInfos) sync(v *View, out ledger.Output) error {
	if d.paths.DeviceInfoDir == "" {
		return nil
	}
	var errs []error
	if d.files == nil {
		own, err := d.own()
		if err != nil {
			return fmt.Errorf("--device-info-dir: %w", err)
		}
		d.files = own
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
			text, err := json.Marshal(info)
			errs = append(errs, err)
			want[filepath.Join(d.paths.DeviceInfoDir, strings.ReplaceAll(name, "/", "-")+"-"+e.Offer.ID+deviceInfoSuffix)] = text
		}
	}
	for file := range d.files {
		if want[file] != nil {
			continue
		}
		err := atomicfile.Remove(file)
		if err == nil {
			delete(d.files, file)
		}
		errs = append(errs, err)
	}
	for file, text := range want {
		if bytes.Equal(d.files[file], text) {
			continue
		}
		err := atomicfile.Write(file, text, 0o644)
		if err == nil {
			d.files[file] = text
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("--device-info-dir: %w", err)
	}
	return nil
}

const deviceInfoSuffix = "-device.json"

// writer marks the files of this installation.
func (d *deviceInfos) writer() string {
	return cmp.Or(d.paths.specOwner(), "generic-dp")
}

// own reads the files of this installation.
func (d *deviceInfos) own() (map[string][]byte, error) {
	entries, err := os.ReadDir(d.paths.DeviceInfoDir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	own := map[string][]byte{}
	for _, e := range entries {
		file := filepath.Join(d.paths.DeviceInfoDir, e.Name())
		text, err := atomicfile.Read(file, deviceInfoLimit)
		var info deviceInfo
		if err == nil && strings.HasSuffix(file, deviceInfoSuffix) && json.Unmarshal(text, &info) == nil && info.Writer == d.writer() {
			own[file] = text
		}
	}
	return own, err
}
