package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/docker/dockertest"
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

// A cluster that does not answer keeps no completion waiting.
func TestCompleteUnanswered(t *testing.T) {
	cluster := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}))
	defer cluster.Close()
	setCluster(t, cluster.URL)
	if got := completions(t, "", "rm --on kubernetes b"); got != "" {
		t.Errorf("got %q", got)
	}
}

// setCluster makes a cluster the current one.
func setCluster(t *testing.T, url string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	config := `{"apiVersion": "v1", "kind": "Config", "current-context": "a", "clusters": [{"name": "c", "cluster": {"server": "` + url + `"}}],
		"contexts": [{"name": "a", "context": {"cluster": "c"}}]}`
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
}

// A sandbox that another platform has is named by the error.
func TestFindElsewhere(t *testing.T) {
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	t.Setenv("DOCKER_HOST", dockertest.New(t).Address)
	asked := 0
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "PodList", "items": []}`)
	}))
	defer cluster.Close()
	setCluster(t, cluster.URL)
	for line, want := range map[string]string{
		"rm --on kubernetes box": "\"box\": no such sandbox\n",
		"rm STATE box":           "\"box\": no such sandbox here; '--on local' has one\n",
		"cat STATE box file":     "\"box\": no such sandbox here; '--on local' has one\n",
		"rm STATE bix":           "\"bix\": no such sandbox\n",
		"rm --local STATE bix":   "\"bix\": no such sandbox\n",
		"rm STATE --on docker x": "\"x\": no such sandbox\n",
	} {
		asked = 0
		words := strings.Fields(strings.ReplaceAll(line, "STATE", "--state-dir "+m.dir))
		if code, _, stderr := inProcess(t.Context(), nil, words...); code != 3 || stderr != "runtimectl: "+want {
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
