package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/actiond/actiond/internal/testhelp"
)

var at = time.Unix(1_700_000_000, 0)

// repository is a git repository with what a release v1.2.3 is refused without.
func repository(t *testing.T) *release {
	t.Helper()
	r := &release{version: "v1.2.3", root: t.TempDir(), work: t.TempDir(), log: io.Discard, artefacts: map[string][]byte{}}
	python := filepath.Join(r.root, "clients/python/src/actiond")
	if err := errors.Join(os.MkdirAll(python, 0o700),
		os.WriteFile(filepath.Join(r.root, "CHANGELOG.md"), []byte("# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2023-11-14\n"), 0o600),
		os.WriteFile(filepath.Join(python, "__init__.py"), []byte("\n__version__ = \"1.2.3\"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "."}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message", "a"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = r.root
		cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=1700000000 +0000", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return r
}

// A tree with uncommitted files, or that does not name the version, is not released.
func TestCheck(t *testing.T) {
	t.Parallel()
	r := repository(t)
	if err := r.check(t.Context()); err != nil || !r.at.Equal(at) {
		t.Fatalf("got %v, %v", r.at, err)
	}
	for version, want := range map[string]string{"": "the form v1.2.3", "1.2.3": "the form v1.2.3", "v1.2.3-rc1": "the form v1.2.3", "v1.2.4": `does not have "`} {
		other := &release{version: version, root: r.root}
		if err := other.check(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q in it", version, err, want)
		}
	}
	testhelp.WriteFile(t, filepath.Join(r.root, "new"), "", 0o600)
	if err := r.check(t.Context()); err == nil || !strings.Contains(err.Error(), "?? new") {
		t.Errorf("got %v, want the file that is not committed", err)
	}
}

// A key that is not there is noticed before programs are built.
func TestMissingKey(t *testing.T) {
	t.Parallel()
	err := run(t.Context(), io.Discard, "v1.2.3", filepath.Join(t.TempDir(), "none"))
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "SIGNING_KEY") {
		t.Errorf("got %v, want the missing key", err)
	}
}

// An archive has nothing of this machine: files in the order of their names, and root's.
func TestArchive(t *testing.T) {
	t.Parallel()
	data, err := tarGz(sorted("top", file{name: "b", mode: 0o644, data: []byte("text")}, file{name: "a", mode: 0o777, link: "b"}), at)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil || z.Name != "" || !z.ModTime.IsZero() {
		t.Fatalf("got %+v, %v", z, err)
	}
	var got []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		got = append(got, fmt.Sprintf("%s %o %s %s %d %d %q %q %v %v", h.Name, h.Mode, h.Linkname, text, h.Uid, h.Gid, h.Uname, h.Gname, h.ModTime.Equal(at), err))
	}
	want := []string{`top/a 777 b  0 0 "" "" true <nil>`, `top/b 644  text 0 0 "" "" true <nil>`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// All blobs of the image are there under their digests, for layouts and for 'docker load'.
func TestImage(t *testing.T) {
	t.Parallel()
	i := image{version: "v1.2.3", at: at}
	for _, arch := range []string{"amd64", "arm64"} {
		if err := i.add(arch, []file{{name: "server", mode: 0o755, data: []byte("for " + arch)}}); err != nil {
			t.Fatal(err)
		}
	}
	data, err := i.tar()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
	// read decodes what a descriptor names.
	read := func(d v1.Descriptor, value any) {
		t.Helper()
		blob := files["blobs/sha256/"+d.Digest.Encoded()]
		if digest.FromBytes(blob) != d.Digest || int64(len(blob)) != d.Size {
			t.Fatalf("%v names %q", d, blob)
		}
		if err := json.Unmarshal(blob, value); err != nil {
			t.Fatal(err)
		}
	}
	var top, index v1.Index
	var load []loadable
	if err := errors.Join(json.Unmarshal(files["index.json"], &top), json.Unmarshal(files["manifest.json"], &load)); err != nil {
		t.Fatal(err)
	}
	read(top.Manifests[0], &index)
	if len(index.Manifests) != 2 || len(load) != 2 || top.Manifests[0].Annotations[v1.AnnotationRefName] != "v1.2.3" {
		t.Fatalf("got %+v, %+v", top, load)
	}
	for n, d := range index.Manifests {
		var manifest v1.Manifest
		var config v1.Image
		read(d, &manifest)
		read(manifest.Config, &config)
		packed := files["blobs/sha256/"+manifest.Layers[0].Digest.Encoded()]
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		layer, err := io.ReadAll(z)
		if err != nil || digest.FromBytes(packed) != manifest.Layers[0].Digest || digest.FromBytes(layer) != config.RootFS.DiffIDs[0] {
			t.Errorf("the layer is not what its digests say: %v", err)
		}
		arch := []string{"amd64", "arm64"}[n]
		if d.Platform.Architecture != arch || config.Architecture != arch || !bytes.Contains(layer, []byte("for "+arch)) {
			t.Errorf("got %+v, %+v for %s", d, config, arch)
		}
		if l := load[n]; l.RepoTags[0] != "actiond-server:v1.2.3-"+arch || l.Config != blobName(manifest.Config) || l.Layers[0] != blobName(manifest.Layers[0]) {
			t.Errorf("got %+v", l)
		}
	}
}

// A wheel lists each of its files with its hash, and says where it can be installed.
func TestWheel(t *testing.T) {
	t.Parallel()
	p, err := readProject([]byte(`[project]
name = "actiond"
description = "Sandboxes"
license = "Apache-2.0"
requires-python = ">=3.9"
dependencies = []
keywords = ["a", "b"]
classifiers = ["Typing :: Typed"]
[project.optional-dependencies]
inspect = ["inspect-ai"]
[project.entry-points.inspect_ai]
actiond = "actiond.adapters.inspect"
`), []byte("# Readme\n"))
	if err != nil {
		t.Fatal(err)
	}
	modules := []file{{name: "adapters/inspect.py", mode: 0o644}, {name: "__init__.py", mode: 0o644, data: []byte("x = 1\n")}}
	programs := []file{{name: "bin/server", mode: 0o755, data: []byte("program")}}
	name, data, err := p.wheel("1.2.3", modules, programs, []file{{name: "LICENSE", mode: 0o644, data: []byte("Apache")}}, wheelTags("arm64"), at)
	if err != nil || name != "actiond-1.2.3-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl" {
		t.Fatalf("got %s, %v", name, err)
	}
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var record strings.Builder
	texts := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		texts[f.Name] = string(text)
		hash := sha256.Sum256(text)
		if !strings.HasSuffix(f.Name, "/RECORD") {
			fmt.Fprintf(&record, "%s,sha256=%s,%d\n", f.Name, base64.RawURLEncoding.EncodeToString(hash[:]), len(text))
		}
		if program := f.Mode()&0o111 != 0; program != (f.Name == "actiond/bin/server") || !f.Modified.Equal(at) {
			t.Errorf("%s: mode %v, time %v", f.Name, f.Mode(), f.Modified)
		}
	}
	const info = "actiond-1.2.3.dist-info/"
	for name, want := range map[string]string{
		"RECORD":           record.String() + info + "RECORD,,\n",
		"entry_points.txt": "[inspect_ai]\nactiond = actiond.adapters.inspect\n\n",
		"METADATA": "Metadata-Version: 2.4\nName: actiond\nVersion: 1.2.3\nSummary: Sandboxes\nKeywords: a,b\nLicense-Expression: Apache-2.0\nLicense-File: LICENSE\n" +
			"Requires-Python: >=3.9\nClassifier: Typing :: Typed\nProvides-Extra: inspect\nRequires-Dist: inspect-ai; extra == 'inspect'\nDescription-Content-Type: text/markdown\n\n# Readme\n",
		"WHEEL": "Wheel-Version: 1.0\nGenerator: actiond-release (1.2.3)\nRoot-Is-Purelib: false\n" +
			"Tag: py3-none-manylinux_2_17_aarch64\nTag: py3-none-manylinux2014_aarch64\nTag: py3-none-musllinux_1_1_aarch64\n",
	} {
		if texts[info+name] != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, texts[info+name], want)
		}
	}
	if name, _, err := p.wheel("1.2.3", modules, nil, nil, nil, at); err != nil || name != "actiond-1.2.3-py3-none-any.whl" {
		t.Errorf("got %s, %v", name, err)
	}
}

// The package's own pyproject.toml has nothing that wheels here do not carry.
func TestProject(t *testing.T) {
	t.Parallel()
	data := testhelp.ReadFile(t, "../../../clients/python/pyproject.toml")
	p, err := readProject(data, nil)
	if err != nil || p.Name != "actiond" || p.License != "Apache-2.0" || p.RequiresPython == "" || len(p.Extras) == 0 {
		t.Errorf("got %+v, %v", p, err)
	}
	for _, bad := range []string{`project.dependencies = ["a"]`, `project.optional-dependencies.x = ["a; python_version < '4'"]`, `project`} {
		if _, err := readProject([]byte(bad), nil); err == nil {
			t.Errorf("%s is not refused", bad)
		}
	}
}

// Completions and pages are there for each shell and each command, and have no other date.
func TestDocuments(t *testing.T) {
	t.Parallel()
	r := &release{version: "v1.2.3", work: t.TempDir(), at: at}
	documents, err := r.documents()
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, f := range documents {
		texts[f.name] = string(f.data)
	}
	for name, want := range map[string]string{
		"man/man1/runtimectl.1": `"Nov 2023" "Actiond v1.2.3"`, "man/man1/runtimectl-exec.1": "runtimectl-exec",
		"completions/runtimectl.bash": "__complete", "completions/runtimectl.zsh": "#compdef runtimectl", "completions/runtimectl.fish": "__complete",
	} {
		if !strings.Contains(texts[name], want) {
			t.Errorf("%s does not have %q:\n%.500s", name, want, texts[name])
		}
	}
	places, err := debFiles([]file{{data: []byte("Apache")}}, documents)
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{
		"/etc/default/actiond", "/usr/lib/systemd/system/actiond-gateway.service", "/usr/share/bash-completion/completions/runtimectl",
		"/usr/share/zsh/vendor-completions/_runtimectl", "/usr/share/fish/vendor_completions.d/runtimectl.fish",
		"/usr/share/man/man1/runtimectl-exec.1.gz", "/usr/share/doc/actiond/copyright",
	} {
		if len(places[place].data) == 0 || places[place].mode != 0o644 {
			t.Errorf("%s: mode %o, %d bytes", place, places[place].mode, len(places[place].data))
		}
	}
}

// dist has the artefacts, their checksums and a signature, and nothing from before.
func TestWrite(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip(err)
	}
	r := repository(t)
	r.add("b", []byte("two"))
	r.add("a", []byte("one"))
	key := filepath.Join(r.work, "key")
	keygen := func(stdin []byte, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "ssh-keygen", args...)
		cmd.Stdin = bytes.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen %q: %v\n%s", args, err, out)
		}
	}
	keygen(nil, "-q", "-t", "ed25519", "-N", "", "-f", key)
	dist := filepath.Join(r.root, "dist")
	if err := errors.Join(os.Mkdir(dist, 0o700), os.WriteFile(filepath.Join(dist, "old"), nil, 0o600), r.write(context.Background(), key)); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dist)
	if err != nil || len(entries) != 4 {
		t.Fatalf("got %v, %v", entries, err)
	}
	sums, err := os.ReadFile(filepath.Join(dist, "SHA256SUMS"))
	if want := sum([]byte("one")) + "  a\n" + sum([]byte("two")) + "  b\n"; err != nil || string(sums) != want {
		t.Errorf("got %s, %v\nwant %s", sums, err, want)
	}
	public := testhelp.ReadFile(t, key+".pub")
	signers := filepath.Join(r.work, "signers")
	testhelp.WriteFile(t, signers, append([]byte("release "), public...), 0o600)
	keygen(sums, "-Y", "verify", "-f", signers, "-I", "release", "-n", "actiond", "-s", filepath.Join(dist, "SHA256SUMS.sig"))
}

// The licenses of all modules of a program are in the notice.
func TestNotice(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data := testhelp.ReadFile(t, self)
	r := &release{root: "../../.."}
	notice, err := r.notice(t.Context(), []file{{name: "release.test", data: data}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nGo " + toolchain + ", LICENSE\n", "\ngithub.com/BurntSushi/toml v", "\ngithub.com/docker/docker v28"} {
		if !bytes.Contains(notice, []byte(want)) {
			t.Errorf("the notice does not have %q", want)
		}
	}
}

// A package that is purged leaves no unit enabled that is gone; one that is removed may
// come back as it was.
func TestPurge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(dir, "etc/systemd/system/multi-user.target.wants/actiond-gateway.service")
	if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o700), os.Symlink("/usr/lib/systemd/system/actiond-gateway.service", link)); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		why  string
		left bool
	}{{"remove", true}, {"purge", false}, {"purge", false}} {
		cmd := exec.CommandContext(t.Context(), "sh", "package/postrm", step.why)
		cmd.Env = append(os.Environ(), "DPKG_ROOT="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if _, err := os.Lstat(link); (err == nil) != step.left {
			t.Errorf("after %s: %v", step.why, err)
		}
	}
}
