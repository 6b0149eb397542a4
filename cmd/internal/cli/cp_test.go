package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/transfer"
	"github.com/actiond/actiond/internal/testhelp"
)

// TestCopy copies both ways as docker cp does.
func TestCopy(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	work := strings.TrimSpace(m.ok("exec", "box", "pwd"))
	here := t.TempDir()
	at := func(name string) string { return filepath.Join(here, name) }
	write(t, at("src/f"), "f")
	write(t, at("src/d/g"), "g")
	if err := os.Symlink("f", at("src/l")); err != nil {
		t.Fatal(err)
	}
	content := []string{"d drwxr-xr-x", "d/g -rw-r--r-- g", "f -rw-r--r-- f", "l -> f"}

	steps := []struct {
		from, to string
		look     string // at what is there then
		want     []string
	}{
		{at("src/f"), "box:", work, []string{"f -rw-r--r-- f"}},
		{at("src/f"), "box:other", work, []string{"f -rw-r--r-- f", "other -rw-r--r-- f"}},
		{at("src/d/g"), "box:other", work, []string{"f -rw-r--r-- f", "other -rw-r--r-- g"}},
		{at("src"), "box:new", work + "/new", content},
		{at("src"), "box:new", work + "/new/src", content},
		{at("src/."), "box:dots", work + "/dots", content},
		{"box:dots", at("out"), at("out"), content},
		{"box:dots/.", at("out"), at("out"), content},
		{"box:dots", at("out"), at("out/dots"), content},
		{"box:dots/f", at("out2"), here, nil},
		{"box:dots/l", at("out3"), here, nil},
		{"box:" + work + "/dots/d", at("out4/"), at("out4"), []string{"g -rw-r--r-- g"}},
	}
	for _, s := range steps {
		m.ok("cp", s.from, s.to)
		if got := testhelp.Tree(t, s.look); s.want != nil && !slices.Equal(got, s.want) {
			t.Fatalf("cp %s %s: got %q\nwant %q", s.from, s.to, got, s.want)
		}
	}
	for name, want := range map[string]string{"out2": "f", "out3": "f"} { // a link that is named is followed
		if got, err := os.ReadFile(at(name)); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}

	archive := m.ok("cp", "box:dots", "-")
	unpacking := transfer.Unpacking{Dest: at("out5"), Name: "x", Open: os.Open}
	if err := unpacking.Unpack(strings.NewReader(archive)); err != nil {
		t.Fatal(err)
	}
	if got := testhelp.Tree(t, at("out5")); !slices.Equal(got, content) {
		t.Errorf("by an archive: got %q\nwant %q", got, content)
	}
	m.ok("exec", "box", "mkdir", "from-archive")
	var errs bytes.Buffer
	p := newProgram(output.Streams{Stdin: strings.NewReader(archive), Stdout: &bytes.Buffer{}, Stderr: &errs, Getenv: os.Getenv})
	if code := p.run(t.Context(), []string{"cp", "--on=local", "--state-dir", m.dir, "-", "box:from-archive"}); code != 0 {
		t.Fatalf("cp -: exit code %d: %s", code, errs.String())
	}
	if got := testhelp.Tree(t, work+"/from-archive/dots"); !slices.Equal(got, content) {
		t.Errorf("from an archive: got %q\nwant %q", got, content)
	}
}

func TestCopyRefused(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	id := strings.TrimSpace(m.ok("create", "--name", "box"))
	work := filepath.Join(m.dir, "local", id, "work")
	m.ok("exec", "box", "touch", "file")
	here := t.TempDir()
	write(t, here+"/file", "x")
	tests := []struct {
		from, to string
		code     int
		stderr   string
	}{
		{"a", "b", 2, `neither "a" nor "b" is in a sandbox`},
		{"box:a", "box:b", 2, "both are in a sandbox"},
		{"box:nope", here, 3, work + "/nope in sandbox " + id + ": not found"},
		{"nope:a", here, 3, `"nope": no such sandbox`},
		{here + "/nope", "box:", 3, "runtimectl: " + here + "/nope: not found\n"},
		{here, "box:file", 5, "is there and is not a directory"},
		{here + "/file", "box:nope/dir/x", 3, "runtimectl: directory " + work + "/nope/dir in sandbox " + id + ": not found\n"},
		{here + "/file", "box:file/x", 5, "runtimectl: " + work + "/file in sandbox " + id + " is not a directory\n"},
		{"box:file/x", here, 3, "runtimectl: " + work + "/file/x in sandbox " + id + ": not found\n"},
		{here + "/file", "box:nope/", 3, "directory " + work + "/nope: not found"},
		{"box:file", here + "/nope/", 3, "directory " + here + "/nope/: file does not exist"},
		{"box:.", here + "/file", 5, "is not a directory"},
		{"-", "box:nope", 3, "directory " + work + "/nope in sandbox"},
	}
	for _, tt := range tests {
		code, stdout, stderr := m.run("cp", tt.from, tt.to)
		if code != tt.code || stdout != "" || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("cp %s %s: exit code %d, stderr %q\nwant %d, %q", tt.from, tt.to, code, stderr, tt.code, tt.stderr)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	testhelp.WriteFile(t, file, text, 0o644)
}

// A copy that is interrupted ends with 130 and leaves nothing.
func TestCpInterrupted(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	m.ok("exec", "box", "sh", "-c", "echo x > f")
	ctx, cancel := context.WithCancel(t.Context())
	p := newProgram(output.Streams{Stdin: &interrupting{cancel}, Stdout: io.Discard, Stderr: io.Discard, Getenv: func(string) string { return "" }})
	if code := p.run(ctx, []string{"cp", "--on=local", "--state-dir", m.dir, "-", "box:/tmp"}); code != command.ExitInterrupted {
		t.Errorf("exit code %d", code)
	}
}

// interrupting is an archive without end, whose reader is interrupted.
type interrupting struct{ cancel context.CancelFunc }

func (i *interrupting) Read(p []byte) (int, error) {
	i.cancel()
	return 0, io.ErrUnexpectedEOF
}

// The progress of a copy names the file, how much of it is copied, and its size.
func TestCopyProgress(t *testing.T) {
	t.Parallel()
	m := newLocalMachine(t)
	m.ok("create", "--name", "box")
	file := filepath.Join(t.TempDir(), "big")
	write(t, file, "")
	if err := os.Truncate(file, 4_000_000_000); err != nil {
		t.Fatal(err)
	}
	y := m.onTerminal("cp", file, "box:")
	y.shows("copying " + file + ": ")
	y.shows(" of 4GB, ")
	y.types("\x03")
	y.ends(command.ExitInterrupted)
}

func TestCopyFigures(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		n, total int64
		took     time.Duration
		want     string
	}{
		{3_000_000, 0, 0, "3MB"},
		{3_000_000, 12_000_000, 0, "3MB of 12MB"},
		{12_001_024, 12_000_000, 2 * time.Second, "12MB of 12MB, 6.001MB/s"},
	} {
		if got := (&counter{n: tt.n, total: tt.total}).figures(tt.took); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
