package output

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/generic-dp/generic-dp/internal/device"
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

const (
	// infoSuffix ends the name of each file: Multus finds a file by the resource, the ID of
	// the device and this suffix.
	infoSuffix = "-device.json"
	// infoVersion is the version of the specification.
	infoVersion = "1.1.0"
	// maxInfo is larger than any file of this program: a larger file belongs to another one.
	maxInfo = 4 << 10
	// networkClass begins the PCI class of network controllers.
	networkClass = "02"
)

// DeviceInfos are the files of the device information specification (Network Plumbing Working Group,
// version 1.1.0), one for each network function. Multus copies their content into the network status of
// a pod, from which KubeVirt and OVN-Kubernetes take the function of each network.
type DeviceInfos struct {
	// Dir is the directory, which all device plugins of the host share. Empty means that no files are
	// wanted.
	Dir string
	// Writer marks the files of this installation.
	Writer string
}

// info is the content of a file.
type info struct {
	Type    string `json:"type"`
	Version string `json:"version"`
	// PCI is set if Type is "pci", and VDPA if it is "vdpa".
	PCI  *pciInfo `json:"pci,omitempty"`
	VDPA *pciInfo `json:"vdpa,omitempty"`
	// Writer is not part of the specification.
	Writer string `json:"writer"`
}

// pciInfo describes a PCI function, or a vDPA device on one.
type pciInfo struct {
	// Parent, Driver and Path describe a vDPA device: its name, the driver of its bus, and
	// its node.
	Parent string `json:"parent-device,omitempty"`
	Driver string `json:"driver,omitempty"`
	Path   string `json:"path,omitempty"`
	// Address is the address of the function.
	Address string `json:"pci-address"`
	// PF is the address of the physical function of a virtual function.
	PF string `json:"pf-pci-address,omitempty"`
}

// Plan returns what to change so that the directory has the files of the present devices, and
// no other files of this installation.
func (d DeviceInfos) Plan(devices []Device) (files.Plan, error) {
	plan := files.Plan{Label: "--device-info-dir", KeepParent: true}
	if d.Dir == "" {
		return plan, nil
	}
	own, err := d.Own()
	if err != nil {
		return plan, fmt.Errorf("%s: %w", plan.Label, err)
	}
	plan.Missing = d.wanted(devices)
	for _, file := range own {
		isWanted := slices.ContainsFunc(plan.Missing, func(f files.File) bool { return f.Path == file })
		if !isWanted {
			plan.Stale = append(plan.Stale, file)
		}
	}
	return plan, nil
}

// Own lists the files of this installation.
func (d DeviceInfos) Own() ([]string, error) {
	if d.Dir == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(d.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var own []string
	for _, e := range entries {
		file := filepath.Join(d.Dir, e.Name())
		if strings.HasSuffix(file, infoSuffix) && d.wrote(file) {
			own = append(own, file)
		}
	}
	return own, nil
}

// wrote reports whether this installation wrote a file.
func (d DeviceInfos) wrote(file string) bool {
	var content info
	err := files.ReadJSON(file, maxInfo, &content)
	return err == nil && content.Writer == d.Writer
}

// wanted returns the files of present devices. Devices that DRA offers have none: Multus looks files up
// by the resource of a device plugin.
func (d DeviceInfos) wanted(devices []Device) []files.File {
	var wanted []files.File
	for _, v := range devices {
		if v.ByDRA || !v.Present {
			continue
		}
		content := describe(v.Hardware)
		if content == nil {
			continue
		}
		content.Writer = d.Writer
		text, _ := json.Marshal(content) // strings only: it never fails
		name := strings.ReplaceAll(v.Resource, "/", "-") + "-" + v.Offer.ID + infoSuffix
		wanted = append(wanted, files.File{
			Path: filepath.Join(d.Dir, name),
			Text: text,
			Mode: 0o644,
		})
	}
	return wanted
}

// describe describes a network function. It returns nil for other hardware, sub-functions
// included, which the specification does not cover.
func describe(h *device.Hardware) *info {
	if h == nil || h.PCI == nil {
		return nil
	}
	isNetwork := strings.HasPrefix(h.PCI.Class, networkClass)
	isSubFunction := h.PCI.SRIOV == "sf"
	if !isNetwork || isSubFunction {
		return nil
	}
	function := &pciInfo{Address: h.PCI.Address, PF: h.PCI.PF}
	for _, n := range h.Nodes {
		if strings.HasPrefix(n.Path, "/dev/vhost-vdpa-") {
			function.Parent = path.Base(path.Dir(n.SysPath))
			function.Driver = "vhost"
			function.Path = n.Path
			return &info{Type: "vdpa", Version: infoVersion, VDPA: function}
		}
	}
	return &info{Type: "pci", Version: infoVersion, PCI: function}
}
