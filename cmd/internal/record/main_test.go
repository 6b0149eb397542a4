package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
)

// A recording has what the commands of the page printed, and nothing of other blocks.
func TestRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	text := "```sh\nfalse\n```\n\n```console\n$ echo 'runtimectl <&>'; stty size\nas the page says\n$ runtimectl () { printf 'a\\rb'; }; runtimectl x\n```\n"
	testhelp.WriteFile(t, page, text, 0o600)
	var out bytes.Buffer
	if err := run(t.Context(), &out, page); err != nil {
		t.Fatal(err)
	}
	var shown []string
	for d := xml.NewDecoder(&out); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "text" && start.Attr[0].Value != "t" {
			var line string
			if err := d.DecodeElement(&line, &start); err != nil {
				t.Fatal(err)
			}
			shown = append(shown, line)
		}
	}
	want := "$ echo 'runtimectl <&>'; stty size\nruntimectl <&>\n40 104\n$ runtimectl () { printf 'a\\rb'; }; runtimectl x\nb"
	if got := strings.Join(shown, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A command that fails is not recorded.
func TestRecordFailure(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.md")
	testhelp.WriteFile(t, page, "```console\n$ runtimectl () { echo why; return 3; }; runtimectl x\n```\n", 0o600)
	if err := run(t.Context(), io.Discard, page); err == nil || !strings.Contains(err.Error(), "exit status 3\nwhy") {
		t.Errorf("got %v, want the exit status and the output", err)
	}
}
