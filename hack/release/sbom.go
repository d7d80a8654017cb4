package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes a CycloneDX bill of materials of the binaries: the linked modules,
// the toolchain, and the digest of each binary.
func writeSBOM(file, version string, binaries []string) error {
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: "generic-dp", Type: cdx.ComponentTypeApplication, Name: "generic-dp", Version: version,
		PackageURL: "pkg:golang/github.com/generic-dp/generic-dp@" + version,
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
	}}
	modules := map[string]cdx.Component{}
	var components []cdx.Component
	for _, binary := range binaries {
		info, err := buildinfo.ReadFile(binary)
		if err != nil {
			return fmt.Errorf("modules of %s: %w", binary, err)
		}
		modules["std"] = module("stdlib", strings.TrimPrefix(info.GoVersion, "go"))
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			modules[m.Path] = module(m.Path, m.Version)
		}
		data, err := os.ReadFile(binary)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		components = append(components, cdx.Component{
			BOMRef: filepath.Base(binary), Type: cdx.ComponentTypeFile, Name: filepath.Base(binary), Version: version,
			Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		})
	}
	for _, m := range modules {
		components = append(components, m)
	}
	slices.SortFunc(components, func(a, b cdx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	bom.Components = &components
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer out.Close()
	if err := cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return out.Close()
}

func module(path, version string) cdx.Component {
	url := "pkg:golang/" + path + "@" + version
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
}
