//go:build integration

package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
)

// TestDockerKilledUpload kills a small container while an upload is written. The file
// is the old one or the new one, and the next start removes what is left besides, and
// nothing that the agent called so.
func TestDockerKilledUpload(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	if err := os.Chmod(work, 0o777); err != nil {
		t.Fatal(err)
	}
	p := startPlain(t, image(t, busyboxImage), append(small("256m"), "--volume", work+":/workspace"),
		[]string{"--state-dir", "/var/lib/actiond", "--username", "nobody"})
	const size = 150 << 20
	body, contentType := uploadOf(t, "f", size)
	p.run(t, "cd /workspace; echo decoy > .actiond-DECOY.tmp; ln -s /etc/passwd .actiond-LINK.tmp; mkdir .actiond-DIR.tmp")
	stays := append(names(t, work), "f")
	slices.Sort(stays)
	left := false
	for attempt := 0; !left && attempt < 10; attempt++ {
		p.run(t, "cd /workspace; echo old > f")
		sent := make(chan struct{})
		go func() { // it fails when the server dies
			defer close(sent)
			_ = p.upload(context.WithoutCancel(t.Context()), "/workspace", body, contentType)
		}()
		testhelp.Eventually(t, func() bool {
			select {
			case <-sent:
				return true
			default:
				return len(names(t, work)) > len(stays)
			}
		}, "the upload begins")
		dockerCLI(t, "kill", "--signal", "KILL", p.id)
		<-sent
		info, err := os.Stat(filepath.Join(work, "f"))
		if err != nil {
			t.Fatal(err)
		}
		if n := info.Size(); n != int64(len("old\n")) && n != size {
			t.Errorf("the file has %d bytes, want the old or the new one", n)
		}
		left = len(names(t, work)) > len(stays)
		p.start(t)
	}
	if !left {
		t.Fatal("no kill left a temporary file")
	}
	if got := names(t, work); !slices.Equal(got, stays) {
		t.Errorf("after the start there is %q, want %q", got, stays)
	}
	if out := p.run(t, "cat .actiond-DECOY.tmp; head -c 4 /etc/passwd"); out != "decoy\nroot" {
		t.Errorf("got %q", out)
	}
}

// TestDockerUploadWithFullTmp has an agent fill /tmp: uploads are buffered elsewhere.
func TestDockerUploadWithFullTmp(t *testing.T) {
	t.Parallel()
	p := startPlain(t, image(t, busyboxImage), append(small("128m"), "--tmpfs", "/tmp:size=1m"), []string{"--state-dir", "/var/lib/actiond"})
	p.run(t, "cat /dev/zero > /tmp/full")
	body, contentType := uploadOf(t, "f", 4<<20)
	if err := p.upload(t.Context(), "/workspace", body, contentType); err != nil {
		t.Fatal(err)
	}
	if out := p.run(t, "wc -c < /workspace/f"); strings.TrimSpace(out) != "4194304" {
		t.Errorf("got %q", out)
	}
}

// uploadOf is the form of an upload of zeros.
func uploadOf(t *testing.T, name string, size int64) (body []byte, contentType string) {
	t.Helper()
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	part, err := w.CreateFormFile("file", name)
	if err == nil {
		_, err = io.CopyN(part, zeros{}, size)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes(), w.FormDataContentType()
}

func (p *plain) upload(ctx context.Context, destination string, body []byte, contentType string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://sandbox/upload_file?destination="+destination, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("X-Session-API-Key", p.key)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return p.dial(ctx) },
	}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("uploading: %s: %s", resp.Status, answer)
	}
	return err
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
