// Copyright The Modelberth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// bill writes the bill of materials of a program in CycloneDX. All programs are static Go programs, in which the linker
// lists every module. So the bill is exact.
func (r *release) bill(name, program string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return r.writeBill(name, info)
}

func (r *release) writeBill(name string, info *debug.BuildInfo) error {
	var out bytes.Buffer
	encoder := cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	if err := encoder.EncodeVersion(billOf(name, r.version, info), cdx.SpecVersion1_6); err != nil {
		return err
	}
	return r.write(path.Join("sbom", name+".cdx.json"), out.Bytes())
}

// billOf returns a bill without serial number and time, so that the same program has the same bill.
func billOf(name, version string, info *debug.BuildInfo) *cdx.BOM {
	components := []cdx.Component{module("stdlib", info.GoVersion, "")}
	for _, dependency := range info.Deps {
		if dependency.Replace != nil {
			dependency = dependency.Replace
		}
		components = append(components, module(dependency.Path, dependency.Version, dependency.Sum))
	}
	bill := cdx.NewBOM()
	bill.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name, Version: version,
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
	}}
	bill.Components = &components
	return bill
}

func module(path, version, sum string) cdx.Component {
	component := cdx.Component{
		Type: cdx.ComponentTypeLibrary, Name: path, Version: version,
		PackageURL: "pkg:golang/" + path + "@" + version, BOMRef: "pkg:golang/" + path + "@" + version,
	}
	if sum != "" { // go.sum has a checksum of the module's files, not of an archive
		component.Properties = &[]cdx.Property{{Name: "modelberth:go.sum", Value: sum}}
	}
	return component
}

// bills writes the bills of the images' programs.
func (r *release) bills(context.Context) error {
	index, err := r.store.ImageIndex()
	if err != nil {
		return err
	}
	for i, name := range imageNames() {
		child, err := index.ImageIndex(r.contents[i].digest)
		if err != nil {
			return err
		}
		manifest, err := child.IndexManifest()
		if err != nil {
			return err
		}
		for _, descriptor := range manifest.Manifests {
			img, err := child.Image(descriptor.Digest)
			if err != nil {
				return err
			}
			info, err := programOf(img, "modelberth-"+name)
			if err != nil {
				return err
			}
			if err := checkPortable(info); err != nil {
				return fmt.Errorf("image %s for %s: %w", name, descriptor.Platform.Architecture, err)
			}
			if err := r.writeBill("modelberth-"+name+"_"+r.version+"_linux_"+descriptor.Platform.Architecture, info); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkPortable returns an error if a program contains directories of the machine that built it. Other machines could
// not build the same bytes.
func checkPortable(info *debug.BuildInfo) error {
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-trimpath", Value: "true"}) {
		return nil
	}
	return errors.New("the program contains directories of the machine that built it: build it with go build -trimpath")
}

// programOf reads the modules of the program in an image.
func programOf(img v1.Image, name string) (*debug.BuildInfo, error) {
	files := mutate.Extract(img)
	defer func() { _ = files.Close() }()
	archive := tar.NewReader(files)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("no file of the image is called %s", name)
		}
		if err != nil {
			return nil, err
		}
		if filepath.Base(header.Name) != name {
			continue
		}
		program, err := io.ReadAll(archive)
		if err != nil {
			return nil, err
		}
		return buildinfo.Read(bytes.NewReader(program))
	}
}
