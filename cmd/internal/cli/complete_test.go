package cli

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/sandbox"
)

// completions are the words that complete a command line, in which STATE is a flag for
// the state directory.
func completions(t *testing.T, dir, line string) string {
	t.Helper()
	args := []string{"__complete"}
	for word := range strings.SplitSeq(line, " ") {
		args = append(args, strings.Split(strings.ReplaceAll(word, "STATE", "--state-dir "+dir), " ")...)
	}
	code, stdout, stderr := inProcess(t.Context(), nil, args...)
	if code != 0 {
		t.Fatalf("%s: exit code %d, %s", line, code, stderr)
	}
	var words []string
	for text := range strings.Lines(stdout) {
		if word, _, _ := strings.Cut(strings.TrimSpace(text), "\t"); !strings.HasPrefix(word, ":") {
			words = append(words, word)
		}
	}
	return strings.Join(words, " ")
}

func TestCompleteImages(t *testing.T) {
	t.Setenv("DOCKER_HOST", dockertest.New(t, "debian:bookworm", "python:3.13", "debian:trixie").Address)
	dir := shortDir(t)
	for line, want := range map[string]string{
		"create STATE deb": "debian:bookworm debian:trixie", "run STATE ": "debian:bookworm debian:trixie python:3.13",
		"serve STATE p": "python:3.13", "pool STATE no": "", "create STATE debian:bookworm ": "",
	} {
		if got := completions(t, dir, line); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

func TestCompleteInSandbox(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	id := strings.TrimSpace(m.ok("create", "--name", "box"))
	m.ok("exec", "--session", "tests", "box", "--", "sh", "-c", "mkdir src; touch src/main.c src/make.c ranch \"src/ma\x1bd\"")
	work := filepath.Join(m.dir, "local", id, "work")
	for line, want := range map[string]string{
		"cp --on local STATE b":              "box:",
		"cp --on local STATE box:":           "box:ranch box:src/",
		"cp --on local STATE box:src/ma":     "box:src/main.c box:src/make.c",
		"cp --on local STATE x box:s":        "box:src/",
		"cp --on local STATE ./":             "",
		"cp --on local STATE box:" + work:    "box:" + work + "/",
		"cat --on local STATE box src/mak":   "src/make.c",
		"edit --on local STATE box r":        "ranch",
		"cat --on local STATE none r":        "",
		"sh --on local STATE box --session ": "default tests",
		"exec --on local STATE --session t":  "",
		"create --on local STATE ":           "",
	} {
		if got := completions(t, m.dir, line); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

// emptyCluster is a driver without sandboxes.
type emptyCluster struct {
	sandbox.Driver // not called

	asked func(context.Context) error
}

func (d emptyCluster) List(ctx context.Context) ([]*sandbox.Sandbox, error) { return nil, d.asked(ctx) }

func (d emptyCluster) Get(ctx context.Context, ref string) (*sandbox.Sandbox, error) {
	if err := d.asked(ctx); err != nil {
		return nil, err
	}
	return sandbox.Find(nil, ref)
}

func (emptyCluster) Close() error { return nil }

// open opens it as the driver of Kubernetes.
func (d emptyCluster) open(platform.Cluster) (sandbox.Driver, error) { return d, nil }

// A cluster that does not answer keeps no completion waiting.
func TestCompleteUnanswered(t *testing.T) {
	t.Parallel()
	asked := 0
	cluster := emptyCluster{asked: func(ctx context.Context) error {
		asked++
		<-ctx.Done()
		return ctx.Err()
	}}
	code, stdout, _ := inProcessWith(t.Context(), cluster.open, nil, "__complete", "rm", "--on", "kubernetes", "b")
	if code != 0 || stdout != ":4\n" || asked != 1 {
		t.Errorf("exit code %d, %q; the cluster was asked %d times", code, stdout, asked)
	}
}

// A sandbox that another platform has is named by the error.
func TestFindElsewhere(t *testing.T) {
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	t.Setenv("DOCKER_HOST", dockertest.New(t).Address)
	asked := 0
	cluster := emptyCluster{asked: func(context.Context) error { asked++; return nil }}
	for line, want := range map[string]string{
		"rm --on kubernetes box":  "\"box\": no such sandbox\n",
		"rm STATE box":            "\"box\": no such sandbox here; '--on local' has one\n",
		"cat STATE box file":      "\"box\": no such sandbox here; '--on local' has one\n",
		"rm STATE bix":            "\"bix\": no such sandbox\n",
		"rm --on=local STATE bix": "\"bix\": no such sandbox\n",
		"rm STATE --on docker x":  "\"x\": no such sandbox\n",
	} {
		asked = 0
		words := strings.Fields(strings.ReplaceAll(line, "STATE", "--state-dir "+m.dir))
		if code, _, stderr := inProcessWith(t.Context(), cluster.open, nil, words...); code != 3 || stderr != "runtimectl: "+want {
			t.Errorf("%s: exit code %d, %q\nwant %q", line, code, stderr, want)
		}
		if named := strings.Contains(line, "kubernetes"); named != (asked > 0) {
			t.Errorf("%s: the cluster was asked %d times", line, asked)
		}
	}
}

// So is one that another platform has while the engine cannot be reached.
func TestFindWithoutEngine(t *testing.T) {
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	socket := filepath.Join(shortDir(t), "none.sock")
	t.Setenv("DOCKER_HOST", "unix://"+socket)
	const doctor = "Run 'runtimectl doctor' to see what is missing.\n"
	for ref, want := range map[string]string{"box": "; '--on local' has a sandbox of that name\n", "bix": "\n"} {
		code, _, stderr := inProcess(t.Context(), nil, "cat", "--state-dir", m.dir, ref, "file")
		if want = "runtimectl: the Docker engine at DOCKER_HOST=unix://" + socket + " cannot be reached" + want + doctor; stderr != want || code == 0 {
			t.Errorf("%s: exit code %d, %q\nwant %q", ref, code, stderr, want)
		}
	}
}
