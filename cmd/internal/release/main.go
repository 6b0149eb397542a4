// Release builds all artefacts of a release into the directory dist: 'make release'
// calls it. The same commit gives the same bytes on all Linux machines of one
// architecture.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra/doc"
	"golang.org/x/sync/errgroup"

	"github.com/actiond/actiond/cmd/internal/cli"
	"github.com/actiond/actiond/kubernetes/manifests"
)

const cyclonedx = "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	version := flag.String("version", "", "the `VERSION` that is released, as v1.2.3")
	key := flag.String("signing-key", "", "sign the checksums with this private key of SSH, a `FILE`")
	flag.Parse()
	if err := run(ctx, os.Stderr, *version, *key); err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// release is one release while it is made.
type release struct {
	version    string // with the letter v
	at         time.Time
	root, work string // directories: the repository, and one for temporary files
	log        io.Writer

	mu        sync.Mutex
	artefacts map[string][]byte // by name
}

// run makes a release of the repository in the current directory.
func run(ctx context.Context, log io.Writer, version, key string) error {
	if key != "" {
		if _, err := os.Stat(key); err != nil {
			return fmt.Errorf("looking for SIGNING_KEY: %w", err)
		}
	}
	root, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("finding the repository: %w", err)
	}
	work, err := os.MkdirTemp("", "actiond-release-")
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	r := &release{version: version, root: root, work: work, log: log, artefacts: map[string][]byte{}}
	if err := r.check(ctx); err != nil {
		return err
	}
	if err := r.make(ctx); err != nil {
		return err
	}
	return r.write(ctx, key)
}

var versionForm = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)$`)

// check refuses a state that cannot be released, and finds the time of the commit.
func (r *release) check(ctx context.Context) error {
	if !versionForm.MatchString(r.version) {
		return fmt.Errorf("VERSION must have the form v1.2.3, and is %q", r.version)
	}
	status, err := r.command(ctx, "", nil, "git", "status", "--porcelain")
	if err != nil {
		return err
	}
	if len(status) > 0 {
		return fmt.Errorf("the work tree has changes that are not committed:\n%s", bytes.TrimSpace(status))
	}
	number := strings.TrimPrefix(r.version, "v")
	for name, want := range map[string]string{"CHANGELOG.md": "\n## [" + number + "]", "clients/python/src/actiond/__init__.py": "\n__version__ = \"" + number + "\"\n"} {
		text, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return fmt.Errorf("looking for the version: %w", err)
		}
		if !strings.Contains(string(text), want) {
			return fmt.Errorf("%s does not have %q", name, strings.TrimSpace(want))
		}
	}
	seconds, err := r.command(ctx, "", nil, "git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	unix, err := strconv.ParseInt(strings.TrimSpace(string(seconds)), 10, 64)
	if err != nil {
		return fmt.Errorf("reading the time of the commit: %w", err)
	}
	r.at = time.Unix(unix, 0).UTC()
	return nil
}

// tool are the variables for programs that write artefacts.
func (r *release) tool() []string {
	return append(slices.Clone(plain), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.at.Unix(), 10))
}

// add keeps an artefact.
func (r *release) add(name string, data []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.artefacts[name] = data
	_, _ = fmt.Fprintf(r.log, "%9.1f MB  %s\n", float64(len(data))/1e6, name)
}

// addTarGz keeps an artefact of files.
func (r *release) addTarGz(name string, files []file) error {
	data, err := tarGz(files, r.at)
	if err == nil {
		r.add(name, data)
	}
	return err
}

// make makes all artefacts.
func (r *release) make(ctx context.Context) error {
	built, mac := map[string]map[string]file{}, map[string]map[string]file{} // by architecture and name
	var all []file
	for _, arch := range architectures {
		var err error
		if built[arch], err = r.build(ctx, "linux", arch, names); err != nil {
			return err
		}
		if mac[arch], err = r.build(ctx, "darwin", arch, elsewhere); err != nil {
			return err
		}
		for _, programs := range []map[string]file{built[arch], mac[arch]} {
			all = slices.AppendSeq(all, maps.Values(programs))
		}
	}
	notice, err := r.notice(ctx, all)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return fmt.Errorf("reading the license: %w", err)
	}
	licenses := []file{{name: "LICENSE", mode: 0o644, data: text}, {name: "NOTICE", mode: 0o644, data: notice}}
	documents, err := r.documents() //nolint:contextcheck // no command is run
	if err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(2) // each holds programs in memory
	for arch, programs := range built {
		for system, programs := range map[string]map[string]file{"linux": programs, "darwin": mac[arch]} {
			work.Go(func() error {
				files := slices.Concat(licenses, documents,
					[]file{built[arch]["server"], programs["runtimectl"], programs["runtimectl-kubernetes"]})
				name := fmt.Sprintf("actiond_%s_%s_%s", r.version, system, arch)
				return r.addTarGz(name+".tar.gz", sorted(name, files...))
			})
		}
	}
	work.Go(func() error { return r.debs(ctx, built, licenses, documents) })
	work.Go(func() error { return r.image(built, licenses) })
	work.Go(func() error { return r.wheels(ctx, built, licenses) })
	work.Go(func() error { return r.bills(ctx) })
	work.Go(r.cluster)
	return work.Wait()
}

// documents returns the completions and manual pages of runtimectl.
func (r *release) documents() ([]file, error) {
	root := cli.Command(r.version)
	root.DisableAutoGenTag = true
	dir := filepath.Join(r.work, "man")
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = doc.GenManTree(root, &doc.GenManHeader{Section: "1", Date: &r.at, Source: "Actiond " + r.version, Manual: "Actiond"}, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("writing manual pages: %w", err)
	}
	var files []file
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading manual pages: %w", err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading manual pages: %w", err)
		}
		files = append(files, file{name: "man/man1/" + e.Name(), mode: 0o644, data: data})
	}
	for shell, write := range map[string]func(io.Writer) error{
		"bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) }, "zsh": root.GenZshCompletion,
		"fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			return nil, fmt.Errorf("writing completions: %w", err)
		}
		files = append(files, file{name: "completions/runtimectl." + shell, mode: 0o644, data: out.Bytes()})
	}
	return files, nil
}

// debs makes the Debian packages, one after the other: two at a time would each compile
// the program that packs them.
func (r *release) debs(ctx context.Context, built map[string]map[string]file, licenses, documents []file) error {
	for arch, programs := range built {
		files, err := debFiles(licenses, documents)
		if err != nil {
			return err
		}
		for name, place := range map[string]string{"server": "/usr/lib/actiond/server", "runtimectl": "/usr/bin/runtimectl", "runtimectl-kubernetes": "/usr/bin/runtimectl-kubernetes"} {
			files[place] = programs[name]
		}
		data, err := r.deb(ctx, arch, files)
		if err != nil {
			return err
		}
		r.add(fmt.Sprintf("actiond_%s_%s.deb", strings.TrimPrefix(r.version, "v"), arch), data)
	}
	return nil
}

// image makes the image of the server and the gateway in a cluster.
func (r *release) image(built map[string]map[string]file, licenses []file) error {
	i := image{version: r.version, at: r.at}
	for _, arch := range architectures {
		files := slices.Concat(licenses, []file{built[arch]["server"], built[arch]["runtimectl-kubernetes"], {name: "runtimectl", mode: 0o777, link: "runtimectl-kubernetes"}})
		if err := i.add(arch, sorted("", files...)); err != nil {
			return err
		}
	}
	data, err := i.tar()
	if err != nil {
		return err
	}
	r.add(fmt.Sprintf("%s_%s.oci.tar", imageName, r.version), data)
	return nil
}

// wheels makes the wheels of the Python package: with the programs for Linux, and without.
func (r *release) wheels(ctx context.Context, built map[string]map[string]file, licenses []file) error {
	const dir = "clients/python/"
	listed, err := r.command(ctx, "", nil, "git", "ls-files", "-z", dir+"src/actiond", dir+"pyproject.toml",
		dir+"README.md")
	if err != nil {
		return err
	}
	var modules []file
	texts := map[string][]byte{}
	for name := range strings.SplitSeq(strings.Trim(string(listed), "\x00"), "\x00") {
		data, err := os.ReadFile(filepath.Join(r.root, name))
		if err != nil {
			return fmt.Errorf("reading the Python package: %w", err)
		}
		texts[strings.TrimPrefix(name, dir)] = data
		if module, ok := strings.CutPrefix(name, dir+"src/actiond/"); ok {
			modules = append(modules, file{name: module, mode: 0o644, data: data})
		}
	}
	p, err := readProject(texts["pyproject.toml"], texts["README.md"])
	if err != nil {
		return err
	}
	version := strings.TrimPrefix(r.version, "v")
	name, data, err := p.wheel(version, modules, nil, licenses[:1], nil, r.at)
	if err != nil {
		return err
	}
	r.add(name, data)
	for _, arch := range architectures {
		programs := sorted("bin", built[arch]["server"], built[arch]["runtimectl"])
		name, data, err := p.wheel(version, modules, programs, licenses, wheelTags(arch), r.at)
		if err != nil {
			return err
		}
		r.add(name, data)
	}
	return nil
}

// bills writes the modules of each program, in the form of CycloneDX.
func (r *release) bills(ctx context.Context) error {
	for _, name := range names {
		program := filepath.Join(r.work, "linux_amd64", name)
		data, err := r.command(ctx, r.work, r.tool(), "go", "run", cyclonedx, "bin", "-json", "-noserial", "-notimestamp",
			"-version", r.version, program)
		if err != nil {
			return err
		}
		r.add(fmt.Sprintf("%s_%s.cdx.json", name, r.version), data)
	}
	return nil
}

// cluster writes the manifests that install a gateway on Kubernetes.
func (r *release) cluster() error {
	name := imageName + ":" + r.version
	install, err := manifests.Gateway(manifests.Options{Image: name})
	if err != nil {
		return fmt.Errorf("writing install.yaml: %w", err)
	}
	chart, err := manifests.Chart(r.version, name)
	if err != nil {
		return fmt.Errorf("writing the chart: %w", err)
	}
	var files []file
	for _, f := range chart {
		files = append(files, file{name: f.Name, mode: 0o644, data: f.Data})
	}
	r.add("install.yaml", install)
	return r.addTarGz(fmt.Sprintf("actiond-chart-%s.tgz", r.version), sorted("actiond", files...))
}

// write writes the artefacts and their checksums into dist, which has nothing else then.
func (r *release) write(ctx context.Context, key string) error {
	dist := filepath.Join(r.root, "dist")
	err := errors.Join(os.RemoveAll(dist), os.Mkdir(dist, 0o755)) //nolint:gosec // for everybody
	r.artefacts["SHA256SUMS"] = checksums(r.artefacts)
	for name, data := range r.artefacts {
		err = errors.Join(err, os.WriteFile(filepath.Join(dist, name), data, 0o644)) //nolint:gosec // for everybody
	}
	if err != nil {
		return fmt.Errorf("writing the artefacts: %w", err)
	}
	if key == "" {
		_, _ = fmt.Fprintln(r.log, "SHA256SUMS is not signed: no SIGNING_KEY was given")
		return nil
	}
	_, err = r.command(ctx, "", nil, "ssh-keygen", "-Y", "sign", "-n", "actiond", "-f", key,
		filepath.Join(dist, "SHA256SUMS"))
	return err
}

// checksums are lines for 'sha256sum --check'.
func checksums(artefacts map[string][]byte) []byte {
	var lines []string
	for name, data := range artefacts {
		lines = append(lines, sum(data)+"  "+name+"\n")
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return []byte(strings.Join(lines, ""))
}
