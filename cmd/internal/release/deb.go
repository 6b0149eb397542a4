package main

import (
	"context"
	"embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

const nfpm = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.44.1"

//go:embed package
var ofPackage embed.FS

// debFiles are the files of a Debian package by their places, without programs.
func debFiles(licenses, documents []file) (map[string]file, error) {
	files := map[string]file{}
	for place, name := range map[string]string{"/etc/default/actiond": "default", "/usr/lib/systemd/system/actiond-gateway.service": "actiond-gateway.service"} {
		data, err := ofPackage.ReadFile("package/" + name)
		if err != nil {
			return nil, fmt.Errorf("reading files of the package: %w", err)
		}
		files[place] = file{mode: 0o644, data: data}
	}
	for _, f := range documents {
		var err error
		switch place := filepath.Base(f.name); filepath.Ext(f.name) {
		case ".bash":
			files["/usr/share/bash-completion/completions/runtimectl"] = f
		case ".zsh":
			files["/usr/share/zsh/vendor-completions/_runtimectl"] = f
		case ".fish":
			files["/usr/share/fish/vendor_completions.d/"+place] = f
		case ".1":
			f.data, err = compressed(f.data)
			files["/usr/share/man/man1/"+place+".gz"] = f
		}
		if err != nil {
			return nil, err
		}
	}
	var copyright file
	for _, f := range licenses {
		copyright.data = append(append(copyright.data, f.data...), '\n')
	}
	copyright.mode = 0o644
	files["/usr/share/doc/actiond/copyright"] = copyright
	return files, nil
}

// deb returns the Debian package with programs and files by their places.
func (r *release) deb(ctx context.Context, arch string, files map[string]file) ([]byte, error) {
	dir := filepath.Join(r.work, "deb-"+arch)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("packing the Debian package: %w", err)
	}
	at := r.at.UTC().Format(time.RFC3339)
	var contents []map[string]any
	for i, place := range slices.Sorted(maps.Keys(files)) {
		src := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(src, files[place].data, 0o600); err != nil {
			return nil, fmt.Errorf("packing the Debian package: %w", err)
		}
		content := map[string]any{
			"src": src, "dst": place,
			"file_info": map[string]any{"mode": files[place].mode, "owner": "root", "group": "root", "mtime": at},
		}
		if strings.HasPrefix(place, "/etc/") {
			content["type"] = "config|noreplace"
		}
		contents = append(contents, content)
	}
	scripts := map[string]string{}
	for key, name := range map[string]string{"postinstall": "postinst", "preremove": "prerm", "postremove": "postrm"} {
		data, err := ofPackage.ReadFile("package/" + name)
		if err == nil {
			scripts[key] = filepath.Join(dir, name)
			err = os.WriteFile(scripts[key], data, 0o700) //nolint:gosec // a program
		}
		if err != nil {
			return nil, fmt.Errorf("packing the Debian package: %w", err)
		}
	}
	config, err := yaml.Dump(map[string]any{
		"name": "actiond", "arch": arch, "platform": "linux", "version": strings.TrimPrefix(r.version, "v"), "release": "",
		"section": "admin", "priority": "optional", "license": "Apache-2.0", "mtime": at,
		"maintainer":  "The Actiond authors <actiond@users.noreply.github.com>",
		"homepage":    "https://github.com/actiond/actiond",
		"description": "sandboxes for AI agents\nruntimectl creates and drives sandboxes in which AI agents act, and serves them over\nHTTP; its server runs in each of them.",
		"suggests":    []string{"docker.io | docker-ce"}, "contents": contents, "scripts": scripts,
	})
	if err != nil {
		return nil, fmt.Errorf("describing the Debian package: %w", err)
	}
	configFile, out := filepath.Join(dir, "nfpm.yaml"), filepath.Join(dir, "actiond.deb")
	if err := os.WriteFile(configFile, config, 0o600); err != nil {
		return nil, fmt.Errorf("describing the Debian package: %w", err)
	}
	if _, err := r.command(ctx, dir, r.tool(), "go", "run", nfpm, "package", "--config", configFile, "--packager", "deb", "--target", out); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(out)
	if err != nil {
		return nil, fmt.Errorf("packing the Debian package: %w", err)
	}
	return data, nil
}
