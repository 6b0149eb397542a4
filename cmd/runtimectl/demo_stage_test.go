package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"
)

func TestVersionOf(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{Deps: []*debug.Module{
		{Path: "example.org/a", Version: "v1.0.0"},
		{Path: "example.org/b", Version: "v1.1.0", Replace: &debug.Module{Path: "../b"}},
	}}
	for path, want := range map[string]string{"example.org/a": "v1.0.0", "example.org/b": "", "example.org/c": ""} {
		if got := versionOf(info, path); got != want {
			t.Errorf("versionOf(%s) = %q, want %q", path, got, want)
		}
	}
}

func TestPack(t *testing.T) {
	t.Parallel()
	want := map[string]string{"go.mod": "module x\n", "sub/a.go": "package sub\n", "empty": ""}
	dir := fstest.MapFS{"link": {Mode: fs.ModeSymlink, Data: []byte("go.mod")}}
	for name, text := range want {
		dir[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o444}
	}
	data, err := pack(dir)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, file := range archive.File {
		r, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[file.Name] = string(text)
	}
	if !maps.Equal(got, want) {
		t.Errorf("the archive has %q, want %q", got, want)
	}
}

func TestPackNothing(t *testing.T) {
	t.Parallel()
	if _, err := pack(fstest.MapFS{}); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
	if _, err := pack(missingDir{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v, want %v", err, fs.ErrNotExist)
	}
}

type missingDir struct{}

func (missingDir) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func TestTail(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&many, "line %d\n", i)
	}
	tests := []struct {
		name   string
		writes []string
		want   string
	}{
		{"nothing", nil, "; it said nothing"},
		{"blank", []string{" \n"}, "; it said nothing"},
		{"pieces of a line", []string{"a", "b\r\nc"}, "; its last words:\n  ab\n  c"},
		{"harmful", []string{"\x1b[2J"}, "; its last words:\n  \\x1b[2J"},
		{
			"many",
			[]string{many.String()},
			"; its last words:\n  line 4990\n  line 4991\n  line 4992\n  line 4993\n  line 4994\n  line 4995\n  line 4996\n  line 4997\n  line 4998\n  line 4999",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var end tail
			for _, text := range tt.writes {
				if n, err := io.WriteString(&end, text); n != len(text) || err != nil {
					t.Errorf("writing %d bytes: %d, %v", len(text), n, err)
				}
			}
			if got := end.quote(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if len(end.data) > tailBytes {
				t.Errorf("%d bytes are kept", len(end.data))
			}
		})
	}
}

func TestWord(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"bin/server":                  "bin/server",
		"http://h:1/execute_action":   "http://h:1/execute_action",
		"/a b/c":                      "'/a b/c'",
		"it's":                        `'it'\''s'`,
		"http://h/x;rm -rf /?a=$HOME": "'http://h/x;rm -rf /?a=$HOME'",
		"":                            "''",
	} {
		if got := word(input); got != want {
			t.Errorf("word(%q) = %s, want %s", input, got, want)
		}
	}
}

func TestCurlAddress(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"http://127.0.0.1:8000":  "http://127.0.0.1:8000/execute_action",
		"https://h/sandboxes/a/": "https://h/sandboxes/a/execute_action",
		"unix:///run/my sock":    "--unix-socket '/run/my sock' http://sandbox/execute_action",
	} {
		if got := curlAddress(input); got != want {
			t.Errorf("curlAddress(%q) = %s, want %s", input, got, want)
		}
	}
}
