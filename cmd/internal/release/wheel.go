package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// project has the metadata of the Python package for a wheel, from pyproject.toml.
type project struct {
	Name           string
	Description    string
	License        string
	RequiresPython string `toml:"requires-python"`
	Dependencies   []string
	Keywords       []string
	Classifiers    []string
	Extras         map[string][]string          `toml:"optional-dependencies"`
	Scripts        map[string]string            `toml:"scripts"`
	EntryPoints    map[string]map[string]string `toml:"entry-points"`
	readme         string
}

func readProject(pyproject, readme []byte) (*project, error) {
	var document struct{ Project project }
	if err := toml.Unmarshal(pyproject, &document); err != nil {
		return nil, fmt.Errorf("reading pyproject.toml: %w", err)
	}
	p := document.Project
	p.readme = string(readme)
	if len(p.Dependencies) > 0 || strings.Contains(strings.Join(slices.Concat(slices.Collect(maps.Values(p.Extras))...), ""), ";") {
		return nil, fmt.Errorf("%s has dependencies, or ones with conditions, which this program does not write", p.Name)
	}
	return &p, nil
}

// metadata is the file METADATA of a wheel.
func (p *project) metadata(version string, licenses []string) []byte {
	var b bytes.Buffer
	line := func(name, value string) { fmt.Fprintf(&b, "%s: %s\n", name, value) }
	line("Metadata-Version", "2.4")
	line("Name", p.Name)
	line("Version", version)
	line("Summary", p.Description)
	line("Keywords", strings.Join(p.Keywords, ","))
	line("License-Expression", p.License)
	for _, name := range licenses {
		line("License-File", name)
	}
	line("Requires-Python", p.RequiresPython)
	for _, c := range p.Classifiers {
		line("Classifier", c)
	}
	for _, extra := range slices.Sorted(maps.Keys(p.Extras)) {
		line("Provides-Extra", extra)
		for _, needed := range p.Extras[extra] {
			line("Requires-Dist", fmt.Sprintf("%s; extra == '%s'", needed, extra))
		}
	}
	line("Description-Content-Type", "text/markdown")
	b.WriteString("\n" + p.readme)
	return b.Bytes()
}

// entryPoints is the file entry_points.txt of a wheel, nil where it needs none.
func (p *project) entryPoints() []byte {
	groups := maps.Clone(p.EntryPoints)
	if len(p.Scripts) > 0 {
		if groups == nil {
			groups = map[string]map[string]string{}
		}
		groups["console_scripts"] = p.Scripts
	}
	var b bytes.Buffer
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&b, "[%s]\n", group)
		for _, name := range slices.Sorted(maps.Keys(groups[group])) {
			fmt.Fprintf(&b, "%s = %s\n", name, groups[group][name])
		}
		b.WriteString("\n")
	}
	return b.Bytes()
}

// wheelTags are the platforms of a wheel with programs for Linux. The programs are
// static: any C library will do.
func wheelTags(arch string) []string {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[arch]
	return []string{"manylinux_2_17_" + machine, "manylinux2014_" + machine, "musllinux_1_1_" + machine}
}

// wheel returns the name and the data of a wheel with the modules of the package and
// other files below its directory, for the platforms in tags: any, if there are none.
func (p *project) wheel(
	version string, modules, more, licenses []file, tags []string, at time.Time,
) (string, []byte, error) {
	pure := len(tags) == 0
	if pure {
		tags = []string{"any"}
	}
	var about bytes.Buffer
	fmt.Fprintf(&about, "Wheel-Version: 1.0\nGenerator: actiond-release (%s)\nRoot-Is-Purelib: %t\n", version, pure)
	for _, tag := range tags {
		about.WriteString("Tag: py3-none-" + tag + "\n")
	}
	info := fmt.Sprintf("%s-%s.dist-info", p.Name, version)
	names := make([]string, 0, len(licenses))
	for _, f := range licenses {
		names = append(names, f.name)
	}
	files := slices.Concat(sorted(p.Name, slices.Concat(modules, more)...), sorted(info+"/licenses", licenses...), sorted(info,
		file{name: "METADATA", mode: 0o644, data: p.metadata(version, names)}, file{name: "WHEEL", mode: 0o644, data: about.Bytes()}))
	if data := p.entryPoints(); data != nil {
		files = append(files, file{name: info + "/entry_points.txt", mode: 0o644, data: data})
	}
	var record bytes.Buffer
	for _, f := range files {
		hash := sha256.Sum256(f.data)
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(hash[:]), len(f.data))
	}
	fmt.Fprintf(&record, "%s/RECORD,,\n", info)
	data, err := zipped(append(files, file{name: info + "/RECORD", mode: 0o644, data: record.Bytes()}), at)
	return fmt.Sprintf("%s-%s-py3-none-%s.whl", p.Name, version, strings.Join(tags, ".")), data, err
}

// zipped packs files in their order.
func zipped(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at.UTC()}
		h.SetMode(fs.FileMode(f.mode)) //nolint:gosec // permission bits
		part, err := w.CreateHeader(h)
		if err == nil {
			_, err = part.Write(f.data)
		}
		if err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("packing: %w", err)
	}
	return out.Bytes(), nil
}
