package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"runtime/debug"
	"strings"
)

// The parts of CycloneDX 1.6 that describe a Go program.
type (
	sbom struct {
		Format       string           `json:"bomFormat"`
		SpecVersion  string           `json:"specVersion"`
		Version      int              `json:"version"`
		Metadata     sbomMetadata     `json:"metadata"`
		Components   []sbomComponent  `json:"components"`
		Dependencies []sbomDependency `json:"dependencies"`
	}
	sbomMetadata struct {
		Component sbomComponent `json:"component"`
	}
	sbomComponent struct {
		Type       string         `json:"type"`
		Ref        string         `json:"bom-ref"`
		Name       string         `json:"name"`
		Version    string         `json:"version"`
		PackageURL string         `json:"purl"`
		Properties []sbomProperty `json:"properties,omitempty"`
	}
	sbomProperty struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	sbomDependency struct {
		Ref       string   `json:"ref"`
		DependsOn []string `json:"dependsOn"`
	}
)

// describe lists the modules in a program, by what the go command wrote into it. It is the same
// for the same program: there is no date and no serial number in it.
func describe(program string) ([]byte, error) {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return nil, err
	}
	main := component("application", &info.Main)
	for _, setting := range info.Settings {
		main.Properties = append(main.Properties, sbomProperty{"go:build:" + setting.Key, setting.Value})
	}
	bom := sbom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1, Metadata: sbomMetadata{main}}
	std := debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")}
	var all []string
	for _, dependency := range append(info.Deps, &std) {
		c := component("library", dependency)
		bom.Components, all = append(bom.Components, c), append(all, c.Ref)
	}
	bom.Dependencies = []sbomDependency{{main.Ref, all}}
	text, err := json.MarshalIndent(bom, "", "  ")
	return append(text, '\n'), err
}

func component(kind string, m *debug.Module) sbomComponent {
	url := "pkg:golang/" + m.Path + "@" + m.Version
	c := sbomComponent{Type: kind, Ref: url, Name: m.Path, Version: m.Version, PackageURL: url}
	if hash, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(hash) > 0 {
		// The hash of go.sum is one of a list of files. It is no property of an archive.
		c.Properties = append(c.Properties, sbomProperty{"go:sum:h1", hex.EncodeToString(hash)})
	}
	return c
}
