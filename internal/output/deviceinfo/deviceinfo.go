// Package deviceinfo plans the files of the device information specification (Network
// Plumbing Working Group, version 1.1.0), one for each network function. Multus copies their
// content into the network status of a pod, from which KubeVirt and OVN-Kubernetes take the
// function of each network.
package deviceinfo

import (
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
	"github.com/generic-dp/generic-dp/internal/output"
	"github.com/generic-dp/generic-dp/internal/sys/atomicfile"
	"github.com/generic-dp/generic-dp/internal/sys/files"
)

const (
	// fileSuffix ends the name of each file: Multus finds a file by the resource, the ID of
	// the device and this suffix.
	fileSuffix = "-device.json"
	// specVersion is the version of the specification.
	specVersion = "1.1.0"
	// maxSize is larger than any file of this program: a larger file belongs to another one.
	maxSize = 4 << 10
	// networkClass begins the PCI class of network controllers.
	networkClass = "02"
)

// Dir is the directory of the files, which all device plugins of the host share.
type Dir struct {
	// Path is the directory. Empty means that no files are wanted.
	Path string
	// Writer marks the files of this installation.
	Writer string
	// known has the names of the files of this installation, nil before they are read.
	known map[string]bool
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
func (d *Dir) Plan(devices []output.Device) (files.Plan, error) {
	plan := files.Plan{Label: "--device-info-dir", KeepParent: true}
	if d.Path == "" {
		return plan, nil
	}
	if d.known == nil {
		own, err := d.Own()
		if err != nil {
			return plan, fmt.Errorf("%s: %w", plan.Label, err)
		}
		d.known = map[string]bool{}
		for _, file := range own {
			d.known[file] = true
		}
	}
	wanted := d.wanted(devices)
	for _, file := range slices.Sorted(maps.Keys(d.known)) {
		if wanted[file] != nil {
			continue
		}
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			delete(d.known, file)
			continue
		}
		plan.Stale = append(plan.Stale, file)
	}
	for _, file := range slices.Sorted(maps.Keys(wanted)) {
		plan.Missing = append(plan.Missing, files.File{Path: file, Text: wanted[file], Mode: 0o644})
		d.known[file] = true // whether it can be written or not
	}
	return plan, nil
}

// Own lists the files of this installation.
func (d *Dir) Own() ([]string, error) {
	if d.Path == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(d.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var own []string
	for _, e := range entries {
		file := filepath.Join(d.Path, e.Name())
		if strings.HasSuffix(file, fileSuffix) && d.wrote(file) {
			own = append(own, file)
		}
	}
	return own, nil
}

// wrote reports whether this installation wrote a file.
func (d *Dir) wrote(file string) bool {
	text, err := atomicfile.Read(file, maxSize)
	if err != nil {
		return false
	}
	var content info
	err = json.Unmarshal(text, &content)
	return err == nil && content.Writer == d.Writer
}

// wanted returns the contents of the files of present devices, by path. Devices that DRA offers
// have none: Multus looks files up by the resource of a device plugin.
func (d *Dir) wanted(devices []output.Device) map[string][]byte {
	wanted := map[string][]byte{}
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
		name := strings.ReplaceAll(v.Resource, "/", "-") + "-" + v.Offer.ID + fileSuffix
		wanted[filepath.Join(d.Path, name)] = text
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
			return &info{Type: "vdpa", Version: specVersion, VDPA: function}
		}
	}
	return &info{Type: "pci", Version: specVersion, PCI: function}
}
