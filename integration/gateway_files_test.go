//go:build integration

package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// TestGatewayFiles writes, reads and removes whole files of a container through the gateway, and edits a large one.
func TestGatewayFiles(t *testing.T) {
	t.Parallel()
	g := serveGateway(t)
	made := g.sandboxOf(t, `{"image":"`+image(t, debianImage)+`"}`, "files")
	base := made["url"].(string)
	defer g.want(204, "DELETE", "/v1/sandboxes/"+made["id"].(string), "")
	file := func(path string) string { return base + "/v1/files?path=" + url.QueryEscape(path) }
	runs := func(command, want string) {
		t.Helper()
		answer := g.want(200, "POST", base+"/execute_action", runBody(command))
		if got, _ := answer["content"].(string); got != want {
			t.Errorf("%s: got %q, want %q", command, got, want)
		}
	}
	edit := func(args string) string {
		t.Helper()
		answer := g.want(200, "POST", base+"/execute_action", `{"action":{"action":"edit","args":{`+args+`}}}`)
		content, _ := answer["content"].(string)
		return content
	}
	const path = "/workspace/new/ä b.bin"
	first, second := strings.Repeat("0123456789", 300_000)+"\x00", strings.Repeat("abc\n", 100)
	hash := func(content string) string {
		sum := sha256.Sum256([]byte(content))
		return hex.EncodeToString(sum[:])
	}
	// One action, however often it is sent.
	var answers [2]string
	for i := range answers {
		answers[i] = fmt.Sprint(g.want(201, "PUT", file(path)+"&mode=0640", first, "Content-Type", "application/octet-stream", "Idempotency-Key", "first"))
	}
	if answers[0] != answers[1] || !strings.Contains(answers[0], hash(first)) {
		t.Errorf("got %s, then %s", answers[0], answers[1])
	}
	runs(`cd /workspace; [ "$(stat -c '%u %a %s' new/*.bin)" = "$(id -u) 640 3000001" ] && echo new/*`, "new/ä b.bin")
	if status, part, err := g.ask(t.Context(), "GET", file(path), "", "Range", "bytes=2999995-"); err != nil || status != 206 || string(part) != "56789\x00" {
		t.Errorf("got %d %q, %v", status, part, err)
	}
	// The hash decides.
	if status, _, err := g.ask(t.Context(), "PUT", file(path), second, "If-Match", `"`+hash(second)+`"`); err != nil || status != 412 {
		t.Errorf("a write over another file than the client knows: got %d, %v, want 412", status, err)
	}
	g.want(200, "PUT", file(path), second, "If-Match", `"`+hash(first)+`"`)
	if status, whole, err := g.ask(t.Context(), "GET", file(path), ""); err != nil || status != 200 || string(whole) != second {
		t.Errorf("got %d %.20q, %v", status, whole, err)
	}
	if got := edit(`"command":"undo_edit","path":"` + path + `"`); !strings.Contains(got, "undone successfully") {
		t.Errorf("got %q", got)
	}
	runs(`sha256sum <new/*.bin`, hash(first)+"  -")
	g.want(200, "DELETE", file(path), "", "If-Match", `"`+hash(first)+`"`)
	runs(`ls -A new`, "")
	// The user of the sandbox reads and writes, and not the server.
	runs(`ln -s /etc/shadow new/shadow; ln -s /etc new/etc; mkfifo new/fifo`, "")
	for _, test := range [][2]string{
		{"GET", "/etc/shadow"},
		{"GET", "/workspace/new/shadow"},
		{"PUT", "/workspace/new/shadow"},
		{"PUT", "/workspace/new/etc/passwd"},
		{"DELETE", "/etc/passwd"},
		{"GET", "/proc/1/environ"},
		{"GET", "/workspace/new/fifo"},
		{"PUT", "/workspace/new/fifo"},
		{"GET", "/dev/zero"},
	} {
		if status, answer, err := g.ask(t.Context(), test[0], file(test[1]), ""); err != nil || status < 400 || status >= 500 {
			t.Errorf("%s %s: got %d %.100q, %v, want a refusal", test[0], test[1], status, answer, err)
		}
	}
	runs(`id -u >/dev/null; tail -c 1 /etc/passwd | wc -l`, "1")

	// A large file on the file system of a container.
	runs(`seq 5000 >big; truncate -s 2G big; echo end >>big; [ $(du -k big | cut -f1) -lt 1000 ] && echo small`, "small")
	const change = `"command":"str_replace","path":"/workspace/big","old_str":"41\n42\n","new_str":"forty-two\n"`
	if got := edit(change); !strings.Contains(got, "File is too large") {
		t.Errorf("got %q", got)
	}
	runs(`head -2 big; tail -c 4 big; stat -c %s big`, "1\n2\nend\n2147483652")
}
