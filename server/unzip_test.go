package server_test

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server"
	"github.com/actiond/actiond/server/files"
)

// entry is a member of a zip.
type entry struct {
	name    string
	content string
	deflate bool
	mode    fs.FileMode
	change  func(*zip.FileHeader) // what the list of members says, against the truth
}

// zipOf builds a zip, hostile ones included.
func zipOf(tb testing.TB, entries ...entry) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Store}
		if e.mode != 0 {
			h.SetMode(e.mode)
		}
		packed := []byte(e.content)
		if e.deflate {
			h.Method = zip.Deflate
			var b bytes.Buffer
			fw, err := flate.NewWriter(&b, flate.BestCompression)
			must(tb, err)
			_, err = io.WriteString(fw, e.content)
			must(tb, err)
			must(tb, fw.Close())
			packed = b.Bytes()
		}
		h.CRC32 = crc32.ChecksumIEEE([]byte(e.content))
		h.UncompressedSize64, h.CompressedSize64 = uint64(len(e.content)), uint64(len(packed))
		if e.change != nil {
			e.change(h)
		}
		fw, err := w.CreateRaw(h)
		must(tb, err)
		_, err = fw.Write(packed)
		must(tb, err)
	}
	must(tb, w.Close())
	return buf.Bytes()
}

func TestUnpack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.MkdirAll(dir+"/real/old", 0o700))
	must(t, os.Symlink(dir+"/real", dir+"/link"))
	must(t, os.Symlink("old", dir+"/real/inner"))
	must(t, os.WriteFile(dir+"/real/old/f", []byte("old"), 0o640))
	before, err := os.Stat(dir + "/real/old/f")
	must(t, err)
	archive := zipOf(t,
		entry{name: "test_dir/file1.txt", content: "File 1 content"},
		entry{name: "test_dir/deep/er/file2", content: strings.Repeat("two", 1000), deflate: true},
		entry{name: "./dotted//twice", content: "d"},
		entry{name: "old/f", content: "new"},
		entry{name: "inner/g", content: "through a link that stays inside"},
		entry{name: "empty", content: ""},
		entry{name: "dir/", mode: fs.ModeDir | 0o755},
		entry{name: "dir/", mode: fs.ModeDir | 0o755},
		entry{name: "./", mode: fs.ModeDir | 0o755},
		entry{name: `..\back`, content: "no separator here"},
		entry{name: "run.sh", content: "#!/bin/sh", mode: 0o4777},
		entry{name: "\xff\xfe", content: "bytes"},
	)
	if w := upload(t, newServer(t), dir+"/link", "a.zip", archive); w.Code != 200 {
		t.Fatalf("got %d %s, want 200", w.Code, w.Body)
	}
	want := map[string]string{
		"test_dir/file1.txt":     "File 1 content",
		"test_dir/deep/er/file2": strings.Repeat("two", 1000),
		"dotted/twice":           "d",
		"old/f":                  "new",
		"old/g":                  "through a link that stays inside",
		"empty":                  "",
		`..\back`:                "no separator here",
		"run.sh":                 "#!/bin/sh",
		"\xff\xfe":               "bytes",
	}
	got := map[string]string{}
	must(t, filepath.WalkDir(dir+"/real", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			got[strings.TrimPrefix(path, dir+"/real/")] = read(t, path)
		}
		return err
	}))
	if len(got) != len(want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, content := range want {
		if got[name] != content {
			t.Errorf("%s: got %q, want %q", name, got[name], content)
		}
	}
	if info, err := os.Stat(dir + "/real/dir"); err != nil || !info.IsDir() {
		t.Errorf("got %v, want the empty directory", err)
	}
	if info, err := os.Stat(dir + "/real/run.sh"); err != nil || info.Mode()&0o7111 != 0 {
		t.Errorf("got mode %v, want no permissions from the zip", info.Mode())
	}
	if after, err := os.Stat(dir + "/real/old/f"); err != nil || after.Mode() != before.Mode() {
		t.Errorf("got %v %v, want the mode of the file that was there", after.Mode(), err)
	}
}

// No hostile archive changes anything, inside the destination or out of it.
func TestUnpackRefused(t *testing.T) {
	t.Parallel()
	good := entry{name: "a/good", content: "good"}
	file := func(name string) []entry { return []entry{good, {name: name, content: "evil"}} }
	zeros := strings.Repeat("\x00", 1<<20)
	tests := []struct {
		name    string
		entries []entry
		change  func([]byte) []byte // of the archive
		status  int
	}{
		{name: "upwards", entries: file("../evil"), status: 400},
		{name: "upwards within", entries: file("a/../../evil"), status: 400},
		{name: "upwards and back", entries: file("a/../evil"), status: 400},
		{name: "upwards at the end", entries: file("a/.."), status: 400},
		{name: "absolute", entries: file("/tmp/evil"), status: 400},
		{name: "NUL", entries: file("a\x00b"), status: 400},
		{name: "no name", entries: file(""), status: 400},
		{name: "dot as a file", entries: file("."), status: 400},
		{name: "long name", entries: file(strings.Repeat("x", 256)), status: 400},
		{name: "long path", entries: file(strings.Repeat("x/", 2500) + "x"), status: 400},
		{name: "link", entries: []entry{good, {name: "l", content: "/etc", mode: fs.ModeSymlink | 0o777}, {name: "l/evil", content: "x"}}, status: 400},
		{name: "link inside", entries: []entry{good, {name: "l", content: "a", mode: fs.ModeSymlink | 0o777}}, status: 400},
		{name: "device", entries: []entry{good, {name: "null", mode: fs.ModeDevice | fs.ModeCharDevice | 0o666}}, status: 400},
		{name: "FIFO", entries: []entry{good, {name: "p", mode: fs.ModeNamedPipe | 0o666}}, status: 400},
		{name: "socket", entries: []entry{good, {name: "s", mode: fs.ModeSocket | 0o666}}, status: 400},
		{name: "directory with content", entries: []entry{good, {name: "d/", change: func(h *zip.FileHeader) { h.UncompressedSize64 = 1 }}}, status: 400},
		{name: "twice", entries: []entry{good, good}, status: 400},
		{name: "twice, in disguise", entries: []entry{good, {name: "a//./good", content: "evil"}}, status: 400},
		{name: "file and directory", entries: []entry{{name: "a", content: "x"}, good}, status: 400},
		{name: "directory and file", entries: []entry{good, {name: "a", content: "x"}}, status: 400},
		{name: "file and empty directory", entries: []entry{{name: "a", content: "x"}, {name: "a/"}}, status: 400},
		{name: "planted link to a directory", entries: file("planted/evil"), status: 400},
		{name: "planted relative link", entries: file("upward/evil"), status: 400},
		{name: "planted link to a file", entries: file("plantedfile"), status: 400},
		{name: "planted directory", entries: []entry{good, {name: "planted/", mode: fs.ModeDir | 0o755}}, status: 400},
		{name: "dangling link", entries: file("dangling"), status: 400},
		{name: "below a dangling link", entries: file("dangling/evil"), status: 400},
		{name: "loop", entries: file("loop/evil"), status: 400},
		{name: "onto a directory", entries: file("sub"), status: 400},
		{name: "directory onto a file", entries: []entry{good, {name: "there/"}}, status: 400},
		{name: "through a file", entries: file("there/evil"), status: 400},
		{name: "onto a FIFO", entries: file("fifo"), status: 400},
		{name: "too much", entries: []entry{good, {name: "b", content: zeros, deflate: true, change: func(h *zip.FileHeader) { h.UncompressedSize64 = 1 << 40 }}}, status: 413},
		{name: "far too much", entries: []entry{good, {name: "b", content: zeros, deflate: true, change: func(h *zip.FileHeader) { h.UncompressedSize64 = 1<<64 - 1 }}}, status: 413},
		{name: "sum too much", entries: []entry{
			{name: "a", content: "x", change: func(h *zip.FileHeader) { h.UncompressedSize64 = files.SmallContent }},
			{name: "b", content: "x"},
		}, status: 413},
		{name: "says less than it holds", entries: []entry{good, {name: "b", content: zeros, deflate: true, change: func(h *zip.FileHeader) { h.UncompressedSize64 = 10 }}}, status: 400},
		{name: "says more than it holds", entries: []entry{good, {name: "b", content: "abc", deflate: true, change: func(h *zip.FileHeader) { h.UncompressedSize64 = 10 }}}, status: 400},
		{name: "stored and says more", entries: []entry{good, {name: "b", content: "abc", change: func(h *zip.FileHeader) { h.UncompressedSize64 = 10 }}}, status: 400},
		{name: "checksum", entries: []entry{good, {name: "b", content: "abc", change: func(h *zip.FileHeader) { h.CRC32++ }}}, status: 400},
		{name: "encrypted", entries: []entry{good, {name: "b", content: "abc", change: func(h *zip.FileHeader) { h.Flags |= 1 }}}, status: 400},
		{name: "other method", entries: []entry{good, {name: "b", content: "abc", change: func(h *zip.FileHeader) { h.Method = 12 }}}, status: 400},
		{name: "damaged", entries: []entry{good, {name: "b", content: strings.Repeat("abc", 99), deflate: true}}, change: func(b []byte) []byte {
			i := bytes.Index(b, []byte("PK\x03\x04")) + 30
			i += bytes.Index(b[i:], []byte("PK\x03\x04")) + 31
			b[i] ^= 0xff
			return b
		}, status: 400},
		{name: "truncated", entries: []entry{good}, change: func(b []byte) []byte { return b[:len(b)-30] }, status: 400},
		{name: "truncated in front", entries: []entry{good}, change: func(b []byte) []byte { return b[40:] }, status: 400},
		{name: "0 bytes", change: func([]byte) []byte { return nil }, status: 400},
		{name: "no zip", change: func([]byte) []byte { return []byte("PK\x03\x04 and no more") }, status: 400},
		{name: "lying count", entries: []entry{good}, change: func(b []byte) []byte {
			end := bytes.LastIndex(b, []byte("PK\x05\x06"))
			binary.LittleEndian.PutUint16(b[end+8:], 60000)
			binary.LittleEndian.PutUint16(b[end+10:], 60000)
			return b
		}, status: 400},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			dir := filepath.Join(outer, "dir")
			must(t, os.MkdirAll(dir+"/sub", 0o700))
			must(t, os.MkdirAll(outer+"/outside", 0o700))
			must(t, os.WriteFile(outer+"/outside/f", []byte("old"), 0o600))
			must(t, os.WriteFile(dir+"/there", []byte("old"), 0o600))
			must(t, syscall.Mkfifo(dir+"/fifo", 0o600))
			must(t, os.Symlink(outer+"/outside", dir+"/planted"))
			must(t, os.Symlink("../outside", dir+"/upward"))
			must(t, os.Symlink(outer+"/outside/f", dir+"/plantedfile"))
			must(t, os.Symlink("nothing", dir+"/dangling"))
			must(t, os.Symlink("loop", dir+"/loop"))
			before := tree(t, outer)
			archive := zipOf(t, tt.entries...)
			if tt.change != nil {
				archive = tt.change(archive)
			}
			var temp string
			s := newServer(t, func(cfg *server.Config) { temp = cfg.TempDir })
			w := upload(t, s, dir, "evil.zip", archive)
			if w.Code != tt.status {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.status)
			}
			field(t, w.Body.Bytes(), "detail")
			if after := tree(t, outer); after != before {
				t.Errorf("got  %s\nwant %s", after, before)
			}
			empty(t, temp)
		})
	}
}

// bomb repeats one deflated megabyte of zeros: about a kilobyte each.
func bomb(tb testing.TB, megabytes int) []byte {
	tb.Helper()
	entries := make([]entry, megabytes)
	zeros := strings.Repeat("\x00", 1<<20)
	for i := range entries {
		entries[i] = entry{name: "z" + itoa(i), content: zeros, deflate: true}
	}
	return zipOf(tb, entries...)
}

func TestBombByRatio(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := upload(t, newServer(t), dir, "bomb.zip", bomb(t, 65))
	if w.Code != 413 {
		t.Errorf("got %d %s, want 413", w.Code, w.Body)
	}
	empty(t, dir)
	if w := upload(t, newServer(t), dir, "no-bomb.zip", bomb(t, 10)); w.Code != 200 {
		t.Errorf("got %d %s for ten files of zeros, want 200", w.Code, w.Body)
	}
}

// overlap builds a list of n members that all stand on the same bytes.
func overlap(tb testing.TB, n, nameLength int) []byte {
	tb.Helper()
	archive := zipOf(tb, entry{name: "x", content: ""})
	start := bytes.Index(archive, []byte("PK\x01\x02"))
	end := bytes.Index(archive, []byte("PK\x05\x06"))
	record := archive[start : start+46]
	out := bytes.NewBuffer(bytes.Clone(archive[:start]))
	for i := range n {
		name := itoa(i) + "/"
		name = strings.Repeat("n", max(0, nameLength-len(name))) + name
		binary.LittleEndian.PutUint16(record[28:], uint16(len(name)))
		out.Write(record)
		out.WriteString(name)
	}
	tail := bytes.Clone(archive[end:])
	binary.LittleEndian.PutUint16(tail[8:], uint16(n))
	binary.LittleEndian.PutUint16(tail[10:], uint16(n))
	binary.LittleEndian.PutUint32(tail[12:], uint32(out.Len()-start))
	binary.LittleEndian.PutUint32(tail[16:], uint32(start))
	out.Write(tail)
	return out.Bytes()
}

func TestBombByCount(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		archive []byte
		status  int
	}{
		// 65,536 more than it says, as the field has 16 bits.
		{"members", overlap(t, files.MaxMembers+1, 0), 413},
		{"long names", overlap(t, 70_000, 240), 413},
		{"directories in names", zipOf(t, deep(60, 1900)...), 413},
		{"a few", overlap(t, 50, 0), 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if w := upload(t, newServer(t), dir, "bomb.zip", tt.archive); w.Code != tt.status {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.status)
			}
			if tt.status != 200 {
				empty(t, dir)
			}
		})
	}
}

// deep returns n files, each below depth directories of its own.
func deep(n, depth int) []entry {
	var entries []entry
	for i := range n {
		entries = append(entries, entry{name: itoa(i) + strings.Repeat("/d", depth)})
	}
	return entries
}

// No archive gets out of the destination, crashes the server or is our fault.
func FuzzUnpack(f *testing.F) {
	f.Add(zipOf(f, entry{name: "a/b", content: "c"}, entry{name: "d/"}))
	f.Add(zipOf(f, entry{name: "a", content: strings.Repeat("x", 1000), deflate: true}))
	f.Add(zipOf(f, entry{name: "../a", content: "c"}))
	f.Add(zipOf(f, entry{name: "planted/a", content: "c"}))
	f.Add(zipOf(f, entry{name: "l", content: "/etc", mode: fs.ModeSymlink}))
	f.Add(overlap(f, 3, 0))
	f.Add([]byte("PK\x05\x06"))
	const most = 1 << 20
	trees := files.New(files.Config{
		As: func(do func() error) error { return do() }, Overrule: func() bool { return false }, MaxUnpacked: most,
	})
	buffer, err := os.Create(f.TempDir() + "/buffer")
	must(f, err)
	f.Cleanup(func() { buffer.Close() })
	f.Fuzz(func(t *testing.T, archive []byte) {
		must(t, buffer.Truncate(0))
		_, err := buffer.WriteAt(archive, 0)
		must(t, err)
		outer := t.TempDir()
		dir := outer + "/dir"
		must(t, os.MkdirAll(outer+"/outside", 0o700))
		must(t, os.WriteFile(outer+"/outside/f", []byte("old"), 0o600))
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.Symlink("../outside", dir+"/planted"))
		before := tree(t, outer+"/outside")
		err = trees.Unzip(t.Context(), buffer, int64(len(archive)), dir)
		if _, refused := errors.AsType[*api.Error](err); err != nil && !refused {
			t.Errorf("got %v, want nothing or a refusal", err)
		}
		if after := tree(t, outer+"/outside"); after != before {
			t.Errorf("got  %s\nwant %s", after, before)
		}
		if entries, err := os.ReadDir(outer); err != nil || len(entries) != 2 {
			t.Errorf("got %v %v beside the destination, want nothing more", entries, err)
		}
	})
}
