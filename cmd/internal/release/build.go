package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// toolchain builds every release: another one would write other bytes.
const toolchain = "go1.26.8"

// names are the programs of a release, below cmd, and elsewhere those for macOS.
var names, elsewhere = []string{"server", "runtimectl", "runtimectl-kubernetes"}, []string{"runtimectl", "runtimectl-kubernetes"}

// architectures are those that programs are built for.
var architectures = []string{"amd64", "arm64"}

// command runs a program in dir, which is the repository if it is empty, with more
// variables, and returns its output.
func (r *release) command(ctx context.Context, dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = cmp.Or(dir, r.root), append(os.Environ(), env...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, bytes.TrimSpace(errs.Bytes()))
	}
	return out, nil
}

// plain are the variables that override those of the caller that would change the build.
var plain = []string{
	"GOTOOLCHAIN=" + toolchain, "CGO_ENABLED=0", "GOFLAGS=-trimpath", "GOEXPERIMENT=", "GODEBUG=", "GOFIPS140=off",
	"GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off",
}

// build builds programs for a system and an architecture, and returns them by name.
func (r *release) build(ctx context.Context, system, arch string, names []string) (map[string]file, error) {
	_, _ = fmt.Fprintf(r.log, "building for %s, %s\n", system, arch)
	dir := filepath.Join(r.work, system+"_"+arch)
	args := []string{"build", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X main.release=" + r.version, "-o", dir + "/"}
	for _, name := range names {
		args = append(args, "./cmd/"+name)
	}
	if _, err := r.command(ctx, "", append(plain, "GOOS="+system, "GOARCH="+arch), "go", args...); err != nil {
		return nil, err
	}
	programs := map[string]file{}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("reading what was built: %w", err)
		}
		programs[name] = file{name: name, mode: 0o755, data: data}
	}
	return programs, nil
}

// license is the name of a file of a module that its users must pass on.
var license = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// notice returns the licenses of Go and of all modules that are linked into programs.
func (r *release) notice(ctx context.Context, programs []file) ([]byte, error) {
	modules := map[string]bool{}
	for _, p := range programs {
		info, err := buildinfo.Read(bytes.NewReader(p.data))
		if err != nil {
			return nil, fmt.Errorf("reading the modules of %s: %w", p.name, err)
		}
		for _, m := range info.Deps {
			modules[m.Path] = true
		}
	}
	args := append([]string{"list", "-m", "-json=Path,Version,Dir"}, slices.Sorted(maps.Keys(modules))...)
	listed, err := r.command(ctx, "", nil, "go", args...)
	if err != nil {
		return nil, err
	}
	root, err := r.command(ctx, "", nil, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	type module struct{ Path, Version, Dir string }
	all := []module{{"Go", toolchain, strings.TrimSpace(string(root))}}
	for decoder := json.NewDecoder(bytes.NewReader(listed)); ; {
		var m module
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading the list of modules: %w", err)
		}
		all = append(all, m)
	}
	var out bytes.Buffer
	out.WriteString("The programs of Actiond contain these modules, under these licenses.\n")
	for _, m := range all {
		if err := addLicenses(&out, m.Path+" "+m.Version, m.Dir); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), nil
}

// addLicenses writes the licenses in the directory of a module.
func addLicenses(out *bytes.Buffer, module, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading the licenses of %s: %w", module, err)
	}
	before := out.Len()
	for _, e := range entries {
		if !e.Type().IsRegular() || !license.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("reading the licenses of %s: %w", module, err)
		}
		fmt.Fprintf(out, "\n%s\n%s, %s\n\n%s\n", strings.Repeat("=", 80), module, e.Name(), bytes.TrimSpace(text))
	}
	if out.Len() == before {
		return fmt.Errorf("%s has no license in %s", module, dir)
	}
	return nil
}
