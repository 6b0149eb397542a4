package main

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
)

// A server that is killed while it writes an upload leaves the old file or the new
// one, and the next one removes what is left besides: exactly that, and not what
// merely has such a name.
func TestKilledDuringUpload(t *testing.T) {
	t.Parallel()
	binary := buildServer(t)
	const size = 150 << 20
	for _, kind := range []string{"file", "zip member"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir, state := t.TempDir(), t.TempDir()
			old := bytes.Repeat([]byte("old "), 1000)
			for name, content := range map[string]string{".actiond-AGENT.tmp": "the agent's", "target": "another file"} {
				write(t, filepath.Join(dir, name), []byte(content))
			}
			if err := os.Symlink("target", filepath.Join(dir, ".actiond-LINK.tmp")); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, ".actiond-DIR.tmp"), 0o700); err != nil {
				t.Fatal(err)
			}
			body := upload{kind: kind, size: size}.encode(t)
			stays := append(entries(t, dir), "f")
			slices.Sort(stays)
			torn, left := 0, 0
			for attempt := 0; left == 0 && attempt < 20; attempt++ {
				write(t, filepath.Join(dir, "f"), old)
				s := startKillable(t, binary, state)
				sent := make(chan struct{})
				go func() { defer close(sent); s.upload(dir, body) }() // it fails when the server dies
				for begun := false; !begun; {
					begun = len(entries(t, dir)) > len(stays)
					select {
					case <-sent:
						begun = true
					default:
					}
				}
				s.kill()
				<-sent
				if n := fileSize(t, filepath.Join(dir, "f")); n != int64(len(old)) && n != size {
					torn++
				}
				left = len(entries(t, dir)) - len(stays)
			}
			if torn > 0 || left == 0 {
				t.Fatalf("%d files were torn, %d temporary ones left, want 0 and 1 or more", torn, left)
			}
			s := startKillable(t, binary, state)
			s.kill()
			if got := entries(t, dir); !slices.Equal(got, stays) {
				t.Errorf("after a start there is %q, want %q", got, stays)
			}
		})
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	testhelp.WriteFile(t, path, content, 0o600)
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// upload is an upload of a file f of zeros.
type upload struct {
	kind string
	size int64
}

type form struct {
	contentType string
	body        []byte
}

func (u upload) encode(t *testing.T) form {
	t.Helper()
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	name := "f"
	if u.kind == "zip member" {
		name = "f.zip"
	}
	part, err := w.CreateFormFile("file", name)
	if err != nil {
		t.Fatal(err)
	}
	if u.kind == "zip member" {
		archive := zip.NewWriter(part)
		member, err := archive.CreateHeader(&zip.FileHeader{Name: "f", Method: zip.Store})
		if err == nil {
			_, err = io.CopyN(member, zeros{}, u.size)
		}
		if err == nil {
			err = archive.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	} else if _, err := io.CopyN(part, zeros{}, u.size); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return form{w.FormDataContentType(), buf.Bytes()}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// killable is a server as a process.
type killable struct {
	cmd    *exec.Cmd
	client *http.Client
}

func startKillable(t *testing.T, binary, state string, more ...string) *killable {
	t.Helper()
	run, err := os.MkdirTemp("", "s") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	socket := filepath.Join(run, "s")
	args := append([]string{"--addr", "unix:" + socket, "--working-dir", run, "--state-dir", state, "--no-enable-browser", "--plugins", "vscode"}, more...)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	k := &killable{cmd, &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}}
	t.Cleanup(k.kill)
	awaitAlive(t, k.client)
	return k
}

// awaitAlive waits until a server answers.
func awaitAlive(t *testing.T, c *http.Client) {
	t.Helper()
	testhelp.Eventually(t, func() bool {
		resp, err := c.Get("http://sandbox/alive")
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	}, "the server answers")
}

// kill kills the server and its shells.
func (k *killable) kill() {
	if k.cmd.ProcessState == nil {
		_ = syscall.Kill(-k.cmd.Process.Pid, syscall.SIGKILL)
		_ = k.cmd.Wait() // killed
	}
}

// ask sends a request, and returns the status; 0 if the server died.
func (k *killable) ask(method, path, body string) int {
	req, err := http.NewRequestWithContext(context.Background(), method, "http://sandbox"+path, strings.NewReader(body))
	if err != nil {
		panic(err) // the arguments are constants
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := k.client.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func (k *killable) upload(dir string, f form) {
	resp, err := k.client.Post(fmt.Sprintf("http://sandbox/upload_file?destination=%s", url.QueryEscape(dir)), f.contentType, bytes.NewReader(f.body))
	if err == nil {
		_ = resp.Body.Close()
	}
}

// A server that is killed while it writes a file with two names in place leaves it torn, and the next one puts the old
// content back.
func TestKilledDuringPutInPlace(t *testing.T) {
	t.Parallel()
	binary := buildServer(t)
	const size = 30 << 20
	before, after := bytes.Repeat([]byte("o"), size), bytes.Repeat([]byte("n"), size)
	dir, state := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "f")
	write(t, path, before)
	if err := os.Link(path, filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	torn := 0
	for attempt := 0; torn == 0 && attempt < 50; attempt++ {
		write(t, path, before) // the same inode
		s := startKillable(t, binary, state)
		sent := make(chan struct{})
		go func() { defer close(sent); s.put(path, after) }() // it fails when the server dies
		for begun := false; !begun; {
			begun = firstByte(t, path) == 'n'
			select {
			case <-sent:
				begun = true
			default:
			}
		}
		s.kill()
		<-sent
		if got := readFile(t, path); !bytes.Equal(got, before) && !bytes.Equal(got, after) {
			torn++
		}
		startKillable(t, binary, state).kill()
		if got := readFile(t, path); !bytes.Equal(got, before) && !bytes.Equal(got, after) {
			t.Fatalf("after a start the file is still torn: it has %d old bytes of %d", bytes.Count(got, []byte("o")), len(got))
		}
	}
	if torn == 0 {
		t.Fatal("no attempt tore the file")
	}
	if got := entries(t, dir); !slices.Equal(got, []string{"f", "other"}) {
		t.Errorf("left in the directory: %q", got)
	}
}

func firstByte(t *testing.T, path string) byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.Read(b); err != nil {
		t.Fatal(err)
	}
	return b[0]
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	raw := testhelp.ReadFile(t, path)
	return raw
}

func (k *killable) put(path string, content []byte) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPut, "http://sandbox/v1/files?path="+url.QueryEscape(path), bytes.NewReader(content))
	if err != nil {
		return
	}
	if resp, err := k.client.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}
