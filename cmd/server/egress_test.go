package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
)

// TestEgress: the proxy applies all files before it answers its controller, decides for a sandbox,
// and takes the place of one that was killed.
func TestEgress(t *testing.T) {
	t.Parallel()
	const id = "0123456789ab"
	dir, err := os.MkdirTemp("/tmp", "egress-") //nolint:usetesting // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, name := range []string{"conf", "run"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"host.json": `{"addresses":["127.0.0.1"]}`, id + ".json": `{"generation":1,"policy":{"mode":"allowlist"}}`, "broken012345.json": `{`,
	} {
		testhelp.WriteFile(t, filepath.Join(dir, "conf", name), text, 0o600)
	}
	left, err := net.Listen("unix", filepath.Join(dir, "control"))
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = left.Close()

	ctx, end := context.WithCancel(t.Context())
	defer end()
	ended := make(chan error, 1)
	var log strings.Builder
	go func() { ended <- run(ctx, []string{"egress", dir}, nil, io.Discard, &log) }()
	control := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "control"))
	}}}
	var status int
	var body []byte
	testhelp.Eventually(t, func() bool {
		answer, err := control.Get("http://egress/" + id)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		status = answer.StatusCode
		body, err = io.ReadAll(answer.Body)
		return err == nil
	}, "the control answers")
	if status != http.StatusOK || !strings.Contains(string(body), `"generation":1`) {
		t.Errorf("got %d %s", status, body)
	}
	sandbox := testhelp.Dial(t, "unix", filepath.Join(dir, "run", id, "s"))
	defer func() { _ = sandbox.Close() }()
	_, _ = fmt.Fprint(sandbox, "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n")
	denied, err := http.ReadResponse(bufio.NewReader(sandbox), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer denied.Body.Close()
	if denied.StatusCode != http.StatusForbidden {
		t.Errorf("got %v", denied)
	}
	if err := serveEgress(t.Context(), []string{dir}, io.Discard); err == nil {
		t.Error("a second proxy took the sockets of the first")
	}
	control.CloseIdleConnections()
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "broken012345") {
		t.Errorf("the log does not name the broken file: %s", &log)
	}
	for want, calls := range map[string][][]string{
		"absolute":   {nil, {"relative"}, {dir, dir}},
		"--listen":   {{"--listen", ":0", dir}, {"--listen="}, {"--metrics-listen", ":0"}},
		"not define": {{"--lists", ":0"}},
		"--never":    {{"--listen", ":0", "--never", "10.0.0.1,example"}},
		"--max-conn": {{"--listen", ":0", "--max-connections", "0"}, {"--listen", ":0", "--max-connections=-1"}},
		"no Pod":     {{"--listen", "127.0.0.1:0", "--never", "10.0.0.1,"}},
	} {
		for _, args := range calls {
			if err := serveEgress(t.Context(), args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: got %v", args, err)
			}
		}
	}
}
