package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// entryOf is a member of an archive with a text as its content.
func entryOf(kind byte, name, text string) *tar.Header {
	h := &tar.Header{Typeflag: kind, Name: name, Mode: 0o644, ModTime: time.Unix(1e9, 0)}
	switch kind {
	case tar.TypeReg:
		h.Size = int64(len(text))
	case tar.TypeDir:
		h.Mode = 0o755
	case tar.TypeSymlink, tar.TypeLink:
		h.Linkname = text
	}
	return h
}

// archiveOf packs members; the content of a file is its name.
func archiveOf(tb testing.TB, members ...*tar.Header) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range members {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(h); err != nil {
			tb.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, h.Name); err != nil {
				tb.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// tree lists what is below a directory: "name mode content", links with what
// they say.
func tree(tb testing.TB, dir string) []string {
	tb.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, file)
		line := rel + " " + info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			line += " " + string(data)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(file)
			if err != nil {
				return err
			}
			line = rel + " -> " + to
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// hostileArchives try to write outside of the directory that they are unpacked
// at, or to leave something dangerous in it. want is what is left, err part of
// the refusal.
var hostileArchives = []struct {
	name    string
	members []*tar.Header
	want    []string
	err     string
}{
	{
		name:    "name with ..",
		members: []*tar.Header{entryOf(tar.TypeDir, "x/", ""), entryOf(tar.TypeReg, "x/../../escaped", "")},
		err:     "leads out of it",
	},
	{
		name:    "absolute name",
		members: []*tar.Header{entryOf(tar.TypeDir, "x/", ""), entryOf(tar.TypeReg, "/escaped", "")},
		err:     "leads out of it",
	},
	{
		name:    "another top",
		members: []*tar.Header{entryOf(tar.TypeDir, "x/", ""), entryOf(tar.TypeReg, "escaped", "")},
		err:     `does not lie in "x"`,
	},
	{
		name:    ".. as the top",
		members: []*tar.Header{entryOf(tar.TypeDir, "..", ""), entryOf(tar.TypeReg, "../escaped", "")},
		err:     "leads out of it",
	},
	{
		name: "through a link to the outside",
		members: []*tar.Header{
			entryOf(tar.TypeDir, "x/", ""), entryOf(tar.TypeSymlink, "x/l", ".."), entryOf(tar.TypeReg, "x/l/inside", ""),
		},
		want: []string{"l drwx------", "l/inside -rw-r--r-- x/l/inside"},
	},
	{
		name: "through a link to the inside",
		members: []*tar.Header{
			entryOf(tar.TypeDir, "x/", ""), entryOf(tar.TypeDir, "x/d/", ""), entryOf(tar.TypeSymlink, "x/l", "d"), entryOf(tar.TypeReg, "x/l/f", ""),
		},
		want: []string{"d drwx------", "l -> d"},
		err:  "is no directory",
	},
	{
		name: "links that lead out",
		members: []*tar.Header{
			entryOf(tar.TypeDir, "x/", ""), entryOf(tar.TypeSymlink, "x/a", "/etc/passwd"), entryOf(tar.TypeSymlink, "x/b", "../../b"),
			entryOf(tar.TypeSymlink, "x/c", "d/../../c"), entryOf(tar.TypeSymlink, "x/ok", "./d"),
		},
		want: []string{"ok -> ./d"},
	},
	{
		name:    "hard link to the outside",
		members: []*tar.Header{entryOf(tar.TypeDir, "x/", ""), entryOf(tar.TypeLink, "x/l", "x/../../sentinel")},
		err:     "leads out of it",
	},
	{
		name:    "hard link to a file that was there",
		members: []*tar.Header{entryOf(tar.TypeDir, "x/", ""), entryOf(tar.TypeLink, "x/l", "x/not-brought")},
		err:     "which it did not bring",
	},
	{
		name: "hard link to a link",
		members: []*tar.Header{
			entryOf(tar.TypeDir, "x/", ""), entryOf(tar.TypeSymlink, "x/s", "f"), entryOf(tar.TypeLink, "x/l", "x/s"),
		},
		want: []string{"s -> f"},
		err:  "which it did not bring",
	},
	{
		name: "devices and pipes",
		members: []*tar.Header{
			entryOf(tar.TypeDir, "x/", ""), entryOf(tar.TypeChar, "x/c", ""), entryOf(tar.TypeBlock, "x/b", ""), entryOf(tar.TypeFifo, "x/p", ""),
		},
	},
	{
		name: "set-uid, owner, modes",
		members: []*tar.Header{
			{Typeflag: tar.TypeDir, Name: "x/", Mode: 0o755},
			{Typeflag: tar.TypeReg, Name: "x/suid", Mode: 0o6755, Uid: 12345, Gid: 12345},
			{Typeflag: tar.TypeDir, Name: "x/sticky/", Mode: 0o3777},
		},
		want: []string{"sticky drwxrwxrwx", "suid -rwxr-xr-x x/suid"},
	},
	{
		name: "a file that becomes a directory",
		members: []*tar.Header{
			entryOf(tar.TypeDir, "x/", ""), entryOf(tar.TypeReg, "x/f", ""), entryOf(tar.TypeReg, "x/f/g", ""),
		},
		want: []string{"f -rw-r--r-- x/f"},
		err:  "is no directory",
	},
	{
		name: "a directory that becomes a link",
		members: []*tar.Header{
			entryOf(tar.TypeDir, "x/", ""), entryOf(tar.TypeReg, "x/d/f", ""), entryOf(tar.TypeSymlink, "x/d", "e"), entryOf(tar.TypeReg, "x/d/g", ""),
		},
		want: []string{"d drwx------", "d/f -rw-r--r-- x/d/f"},
		err:  "is no file",
	},
}

// TestUnpackHostile unpacks each attack beside a file that must stay as it is.
func TestUnpackHostile(t *testing.T) {
	t.Parallel()
	for _, tt := range hostileArchives {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			if err := os.WriteFile(filepath.Join(outer, "sentinel"), []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			dest := filepath.Join(outer, "dest")
			err := unpackAt(bytes.NewReader(archiveOf(t, tt.members...)), dest, remotePath{path: "/x"}, func(string) {})
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
			if got := tree(t, dest); !slices.Equal(got, tt.want) {
				t.Errorf("got %q\nwant %q", got, tt.want)
			}
			checkOuter(t, outer)
		})
	}
}

func checkOuter(tb testing.TB, outer string) {
	tb.Helper()
	entries, err := os.ReadDir(outer)
	if err != nil {
		tb.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "dest" && e.Name() != "sentinel" {
			tb.Errorf("outside there is %s now", e.Name())
		}
	}
	if data, err := os.ReadFile(filepath.Join(outer, "sentinel")); err != nil || string(data) != "mine" {
		tb.Errorf("the file outside is %q, %v now", data, err)
	}
}

// In two steps: what an earlier copy left is not followed by a later one.
func TestUnpackTwice(t *testing.T) {
	t.Parallel()
	outer := t.TempDir()
	dest, note := filepath.Join(outer, "dest"), func(string) {}
	if err := errors.Join(os.Mkdir(dest, 0o755), os.WriteFile(filepath.Join(outer, "sentinel"), []byte("mine"), 0o600)); err != nil {
		t.Fatal(err)
	}
	// Somebody else's mistake: a link of the sandbox's making that leads out.
	if err := errors.Join(os.Mkdir(filepath.Join(dest, "x"), 0o755), os.Symlink("../../sentinel", filepath.Join(dest, "x", "l"))); err != nil {
		t.Fatal(err)
	}
	archive := archiveOf(t, entryOf(tar.TypeDir, "x/", ""), entryOf(tar.TypeReg, "x/l", ""))
	if err := unpackAt(bytes.NewReader(archive), dest, remotePath{path: "/x"}, note); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, dest); !slices.Equal(got, []string{"x drwxr-xr-x", "x/l -rw-r--r-- x/l"}) {
		t.Errorf("got %q, want the link replaced", got)
	}
	checkOuter(t, outer)
	// A link in the place of the whole.
	if err := errors.Join(os.RemoveAll(filepath.Join(dest, "x")), os.Symlink("..", filepath.Join(dest, "x"))); err != nil {
		t.Fatal(err)
	}
	err := unpackAt(bytes.NewReader(archive), dest, remotePath{path: "/x"}, note)
	if !errors.Is(err, errConflict) {
		t.Errorf("through a link to a directory: got %v, want a conflict", err)
	}
	checkOuter(t, outer)
}

// TestUnpackOverDevice: what is no file is not replaced, least of all by root.
func TestUnpackOverDevice(t *testing.T) {
	t.Parallel()
	err := unpackAt(bytes.NewReader(archiveOf(t, entryOf(tar.TypeReg, "x", ""))), "/dev/null", remotePath{path: "/x"}, func(string) {})
	if !errors.Is(err, errConflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	if info, err := os.Stat("/dev/null"); err != nil || info.Mode()&fs.ModeDevice == 0 {
		t.Fatalf("/dev/null is %v, %v now", info.Mode(), err)
	}
}

// Whatever an archive holds, nothing outside of the destination changes and
// nothing in it leads out or has power.
func FuzzUnpack(f *testing.F) {
	for _, tt := range hostileArchives {
		f.Add(archiveOf(f, tt.members...))
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		if len(archive) > 64<<10 {
			return
		}
		outer := t.TempDir()
		if err := os.WriteFile(filepath.Join(outer, "sentinel"), []byte("mine"), 0o600); err != nil {
			t.Fatal(err)
		}
		dest := filepath.Join(outer, "dest")
		_ = unpackAt(io.LimitReader(bytes.NewReader(archive), 64<<10), dest, remotePath{path: "/x"}, func(string) {})
		checkOuter(t, outer)
		_ = filepath.WalkDir(dest, func(file string, entry fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // a directory that was made unreadable
			}
			if !entry.IsDir() && !entry.Type().IsRegular() && entry.Type() != fs.ModeSymlink {
				t.Errorf("%s is %v", file, entry.Type())
			}
			if to, err := os.Readlink(file); err == nil && (filepath.IsAbs(to) || !strings.HasPrefix(filepath.Join(filepath.Dir(file), to)+"/", dest+"/")) {
				t.Errorf("%s leads to %s", file, to)
			}
			return nil
		})
	})
}

// TestChown: what comes from standard input belongs to the sandbox's user.
func TestChown(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	var notes []string
	p := &packer{out: tar.NewWriter(&out), owner: account{7, 8}, note: func(text string) { notes = append(notes, text) }}
	in := archiveOf(t, &tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o4755, Uid: 1, Gid: 2, Uname: "root"},
		entryOf(tar.TypeChar, "device", ""), entryOf(tar.TypeSymlink, "l", "f"), entryOf(tar.TypeDir, strings.Repeat("d", 200)+"/", ""))
	if err := errors.Join(p.chown(bytes.NewReader(in)), p.out.Close()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 7 || h.Gid != 8 || h.Uname != "" {
			t.Errorf("%s belongs to %d:%d %q", h.Name, h.Uid, h.Gid, h.Uname)
		}
		got = append(got, h.FileInfo().Mode().String()+" "+h.Name)
	}
	want := []string{"-rwxr-xr-x f", "Lrw-r--r-- l", "drwxr-xr-x " + strings.Repeat("d", 200) + "/"}
	if !slices.Equal(got, want) || len(notes) != 1 {
		t.Errorf("got %q, left out %q\nwant %q and the device left out", got, notes, want)
	}
	if err := p.chown(strings.NewReader(strings.Repeat("no archive ", 100))); err == nil || !strings.Contains(err.Error(), "is no tar archive") {
		t.Errorf("of something else: got %v", err)
	}
}
