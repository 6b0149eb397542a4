package archive_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/internal/archive"
	"github.com/actiond/actiond/internal/testhelp"
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
		want: []string{"d drwxr-xr-x", "l -> d"},
		err:  "is not a directory",
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
		name: "links that lead out by other links",
		members: []*tar.Header{
			entryOf(tar.TypeDir, "x/", ""), entryOf(tar.TypeSymlink, "x/s", "."), entryOf(tar.TypeSymlink, "x/a", "s/s/../../etc/hostname"),
			entryOf(tar.TypeSymlink, "x/b", "s/.."), entryOf(tar.TypeSymlink, "x/c", ".//../x"), entryOf(tar.TypeDir, "x/d/", ""),
			entryOf(tar.TypeSymlink, "x/d/e", "../../f"), entryOf(tar.TypeSymlink, "x/d/f", "../s/d/.."), entryOf(tar.TypeSymlink, "x/d/up", "./../ok"),
			entryOf(tar.TypeSymlink, "x/ok", "d//f..g"),
		},
		want: []string{"d drwxr-xr-x", "d/up -> ./../ok", "ok -> d//f..g", "s -> ."},
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
		err:  "is not a directory",
	},
	{
		name: "a directory that becomes a link",
		members: []*tar.Header{
			entryOf(tar.TypeDir, "x/", ""), entryOf(tar.TypeReg, "x/d/f", ""), entryOf(tar.TypeSymlink, "x/d", "e"), entryOf(tar.TypeReg, "x/d/g", ""),
		},
		want: []string{"d drwx------", "d/f -rw-r--r-- x/d/f"},
		err:  "it is not a file",
	},
}

// unpack unpacks an archive whose top is x at dest, which is made.
func unpack(tb testing.TB, data io.Reader, dest string, change ...func(*archive.Unpacker)) (entries int, err error) {
	tb.Helper()
	if err := os.Mkdir(dest, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		tb.Fatal(err)
	}
	root, err := os.Open(dest)
	if err != nil {
		tb.Fatal(err)
	}
	defer root.Close()
	u := &archive.Unpacker{Root: root, Top: "x", NewRoot: true}
	for _, c := range change {
		c(u)
	}
	return u.Unpack(tar.NewReader(data), nil)
}

// headersOf returns the headers of an archive's members.
func headersOf(t *testing.T, data io.Reader) (all []*tar.Header) {
	t.Helper()
	for r := tar.NewReader(data); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
}

// TestUnpackHostile unpacks each attack beside a file that must stay as it is.
func TestUnpackHostile(t *testing.T) {
	t.Parallel()
	for _, tt := range hostileArchives {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			outer := t.TempDir()
			testhelp.WriteFile(t, filepath.Join(outer, "sentinel"), "mine", 0o600)
			dest := filepath.Join(outer, "dest")
			_, err := unpack(t, bytes.NewReader(archiveOf(t, tt.members...)), dest)
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
			if got := testhelp.Tree(t, dest); !slices.Equal(got, tt.want) {
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

// TestUnpackThroughLink has a link in the directory before: it is replaced, or in
// the way.
func TestUnpackThroughLink(t *testing.T) {
	t.Parallel()
	outer := t.TempDir()
	dest := filepath.Join(outer, "dest")
	if err := errors.Join(os.Mkdir(dest, 0o755), os.WriteFile(filepath.Join(outer, "sentinel"), []byte("mine"), 0o600),
		os.Symlink("../sentinel", filepath.Join(dest, "l")), os.Symlink("..", filepath.Join(dest, "up"))); err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(t, bytes.NewReader(archiveOf(t, entryOf(tar.TypeReg, "x/l", ""))), dest); err != nil {
		t.Fatal(err)
	}
	if got := testhelp.Tree(t, dest); !slices.Equal(got, []string{"l -rw-r--r-- x/l", "up -> .."}) {
		t.Errorf("got %q, want the link replaced", got)
	}
	for _, member := range []*tar.Header{entryOf(tar.TypeReg, "x/up/escaped", ""), entryOf(tar.TypeDir, "x/up/", "")} {
		if _, err := unpack(t, bytes.NewReader(archiveOf(t, member)), dest); !errors.Is(err, archive.ErrExists) {
			t.Errorf("%s: got %v, want ErrExists", member.Name, err)
		}
	}
	checkOuter(t, outer)
}

// TestUnpackOverDevice does not replace what is no file, least of all as root.
func TestUnpackOverDevice(t *testing.T) {
	t.Parallel()
	dev, err := os.Open("/dev")
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	u := &archive.Unpacker{Root: dev}
	if _, err := u.Unpack(tar.NewReader(bytes.NewReader(archiveOf(t, entryOf(tar.TypeReg, "null", "")))), nil); !errors.Is(err, archive.ErrExists) {
		t.Errorf("got %v, want ErrExists", err)
	}
	if info, err := os.Stat("/dev/null"); err != nil || info.Mode()&fs.ModeDevice == 0 {
		t.Fatalf("/dev/null is %v, %v now", info.Mode(), err)
	}
}

// FuzzUnpack checks that nothing outside of the destination changes, whatever an
// archive holds, and that nothing in it leads out or has power.
func FuzzUnpack(f *testing.F) {
	for _, tt := range hostileArchives {
		f.Add(archiveOf(f, tt.members...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 64<<10 {
			return
		}
		outer := t.TempDir()
		testhelp.WriteFile(t, filepath.Join(outer, "sentinel"), "mine", 0o600)
		dest := filepath.Join(outer, "dest")
		_, _ = unpack(t, io.LimitReader(bytes.NewReader(data), 64<<10), dest)
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

// TestDeep unpacks and packs the deepest directories there can be, and hard links
// between their ends, in a time that grows with their depth and not its square.
func TestDeep(t *testing.T) {
	t.Parallel()
	const depth = 2039
	chains := [2]string{"x", "x"}
	var members []*tar.Header
	for i := range chains {
		for range depth {
			chains[i] += "/" + string(rune('a'+i))
			members = append(members, &tar.Header{Typeflag: tar.TypeDir, Name: chains[i] + "/", Mode: 0o710, ModTime: time.Unix(1e9, 0)})
		}
		members = append(members, entryOf(tar.TypeReg, chains[i]+"/f", ""))
	}
	for i := range 500 {
		members = append(members, entryOf(tar.TypeLink, chains[1]+"/l"+strconv.Itoa(i), chains[0]+"/f"))
	}
	dest := filepath.Join(t.TempDir(), "dest")
	calls := 0
	count := func(u *archive.Unpacker) {
		u.As = func(work func() error) error { calls++; return work() }
	}
	n, err := unpack(t, bytes.NewReader(archiveOf(t, members...)), dest, count)
	if err != nil || n != len(members) {
		t.Fatalf("unpacked %d of %d: %v", n, len(members), err)
	}
	if calls > 100_000 { // the square of the depth is four millions
		t.Errorf("it took %d steps", calls)
	}
	root, err := os.Open(filepath.Dir(dest))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var out bytes.Buffer
	open := openBelow{t: t, dir: dest, to: &out}
	p := &archive.Packer{Out: tar.NewWriter(&open)}
	if err := errors.Join(p.Pack(root, "dest", "x"), p.Out.Close()); err != nil {
		t.Fatal(err)
	}
	if open.most == 0 || open.most > 200 {
		t.Errorf("%d descriptors were open at a time", open.most)
	}
	dirs, files := 0, 0
	for _, h := range headersOf(t, &out) {
		switch {
		case h.Typeflag == tar.TypeReg:
			files++
		case h.Name != "x/" && (h.Mode != 0o710 || !h.ModTime.Equal(time.Unix(1e9, 0))):
			t.Fatalf("%.20s... has mode %o and time %v", h.Name, h.Mode, h.ModTime)
		default:
			dirs++
		}
	}
	if dirs != 2*depth+1 || files != 502 {
		t.Errorf("packed %d directories and %d files", dirs, files)
	}
}

// openBelow counts now and then how many descriptors are open below a directory.
type openBelow struct {
	t            *testing.T
	dir          string
	to           io.Writer
	writes, most int
}

func (o *openBelow) Write(data []byte) (int, error) {
	if o.writes++; o.writes%2000 == 0 {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			o.t.Fatal(err)
		}
		count := 0
		for _, e := range entries {
			to, err := os.Readlink("/proc/self/fd/" + e.Name())
			if strings.HasPrefix(to, o.dir+"/") || errors.Is(err, syscall.ENAMETOOLONG) {
				count++
			}
		}
		o.most = max(o.most, count)
	}
	return o.to.Write(data)
}

// TestWide packs all of a directory once that has more entries than are read at a time, also
// where the work in those in between is so deep that it has to be opened again.
func TestWide(t *testing.T) {
	t.Parallel()
	dest := t.TempDir()
	var want []string
	for i := range 1000 {
		name := strconv.Itoa(i)
		want = append(want, "x/"+name)
		if i%300 != 150 {
			testhelp.WriteFile(t, filepath.Join(dest, name), "", 0o600)
			continue
		}
		if err := os.MkdirAll(filepath.Join(dest, name, strings.Repeat("d/", 200)), 0o700); err != nil {
			t.Fatal(err)
		}
		for depth := range 200 {
			want = append(want, "x/"+name+strings.Repeat("/d", depth+1))
		}
	}
	root, err := os.Open(dest)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var out bytes.Buffer
	p := &archive.Packer{Out: tar.NewWriter(&out)}
	if err := errors.Join(p.Pack(root, ".", "x"), p.Out.Close()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range headersOf(t, &out) {
		got = append(got, strings.TrimSuffix(h.Name, "/"))
	}
	want = append(want, "x")
	slices.Sort(got)
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("packed %d names of %d", len(got), len(want))
	}
}

// TestNames keeps names that are not UTF-8, both ways.
func TestNames(t *testing.T) {
	t.Parallel()
	names := []string{"\xff", "d\xc3(/", "d\xc3(/\xfe f", "a\\b", "new\nline", "日本", strings.Repeat("n", 255), " ", "..."}
	var members []*tar.Header
	for _, name := range names {
		kind := byte(tar.TypeReg)
		if strings.HasSuffix(name, "/") {
			kind = tar.TypeDir
		}
		members = append(members, entryOf(kind, "x/"+name, ""))
	}
	members = append(members, entryOf(tar.TypeSymlink, "x/link", "d\xc3("))
	dest := filepath.Join(t.TempDir(), "dest")
	if _, err := unpack(t, bytes.NewReader(archiveOf(t, members...)), dest); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(dest)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	var out bytes.Buffer
	p := &archive.Packer{Out: tar.NewWriter(&out)}
	if err := errors.Join(p.Pack(root, ".", "x"), p.Out.Close()); err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(t.TempDir(), "dest")
	if _, err := unpack(t, &out, again); err != nil {
		t.Fatal(err)
	}
	want := testhelp.Tree(t, dest)
	if got := testhelp.Tree(t, again); len(got) != len(members) || !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestHoles keeps holes, and what is between them.
func TestHoles(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	content := make([]byte, size)
	copy(content[10<<20:], "one")
	copy(content[40<<20+5000:], "two")
	copy(content[50<<20:], bytes.Repeat([]byte("x"), 1<<20))
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "x/f", Mode: 0o600, Size: size}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	dest := filepath.Join(t.TempDir(), "dest")
	if _, err := unpack(t, &data, dest); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dest, "f"))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("the content is another: %v", err)
	}
	info, err := os.Stat(filepath.Join(dest, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if blocks := info.Sys().(*syscall.Stat_t).Blocks * 512; blocks > 4<<20 {
		t.Errorf("it takes %d bytes", blocks)
	}
}

// TestTooLarge refuses a file that is larger than the disk before it writes.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	var data bytes.Buffer
	w := tar.NewWriter(&data)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "x/f", Mode: 0o600, Size: 1 << 60, Format: tar.FormatGNU}); err != nil {
		t.Fatal(err)
	}
	dest := filepath.Join(t.TempDir(), "dest")
	_, err := unpack(t, io.MultiReader(&data, endless{}), dest)
	if !errors.Is(err, archive.ErrFull) {
		t.Errorf("got %v, want ErrFull", err)
	}
	if got := testhelp.Tree(t, dest); len(got) != 0 {
		t.Errorf("there is %q", got)
	}
}

// endless is a source of zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestManyFiles unpacks more files than could be kept by name.
func TestManyFiles(t *testing.T) {
	t.Parallel()
	const count = 20_000
	r, w := io.Pipe()
	go func() {
		out := tar.NewWriter(w)
		long := strings.Repeat("n", 200)
		err := out.WriteHeader(entryOf(tar.TypeDir, "x/", ""))
		for i := 0; i < count && err == nil; i++ {
			err = out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "x/" + long + strconv.Itoa(i), Mode: 0o600})
		}
		w.CloseWithError(errors.Join(err, out.Close()))
	}()
	dest := filepath.Join(t.TempDir(), "dest")
	if n, err := unpack(t, r, dest); err != nil || n != count+1 {
		t.Errorf("got %d, %v", n, err)
	}
}

// TestAllLinks makes links as they are, for a sandbox.
func TestAllLinks(t *testing.T) {
	t.Parallel()
	dest := filepath.Join(t.TempDir(), "dest")
	data := archiveOf(t, entryOf(tar.TypeSymlink, "x/a", "/etc/passwd"), entryOf(tar.TypeSymlink, "x/b", "../../b"), entryOf(tar.TypeReg, "x/d/f", ""))
	if _, err := unpack(t, bytes.NewReader(data), dest, func(u *archive.Unpacker) { u.AllLinks, u.DirMode = true, 0o755 }); err != nil {
		t.Fatal(err)
	}
	if got, want := testhelp.Tree(t, dest), []string{"a -> /etc/passwd", "b -> ../../b", "d drwxr-xr-x", "d/f -rw-r--r-- x/d/f"}; !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestPackHostile packs a directory while its owner replaces what is in it by
// links, FIFOs and other directories.
func TestPackHostile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"in", "in/d", "out"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"in/f", "in/d/g", "out/g", "out/secret"} {
		testhelp.WriteFile(t, filepath.Join(dir, name), name, 0o600)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		d, f, kept := filepath.Join(dir, "in/d"), filepath.Join(dir, "in/f"), filepath.Join(dir, "kept")
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Rename(d, kept)
			_ = os.Symlink("../out", d)
			_ = os.Remove(f)
			_ = syscall.Mkfifo(f, 0o600)
			_ = os.Remove(d)
			_ = os.Rename(kept, d)
			_ = os.Remove(f)
			_ = os.Symlink("../out/secret", f)
			_ = os.Remove(f)
			_ = os.WriteFile(f, []byte("in/f"), 0o600)
		}
	}()
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for range 500 {
		var out bytes.Buffer
		p := &archive.Packer{Out: tar.NewWriter(&out)}
		_ = p.Pack(root, "in", "in") // it fails where something is replaced
		_ = p.Out.Flush()
		for r := tar.NewReader(&out); ; {
			h, err := r.Next()
			if err != nil {
				break
			}
			data, _ := io.ReadAll(r)
			if h.Typeflag == tar.TypeReg && bytes.HasPrefix(data, []byte("out/")) || strings.Contains(h.Name, "secret") {
				t.Fatalf("%s holds %q", h.Name, data)
			}
		}
	}
	close(stop)
	<-stopped
}

// TestPass: an archive from standard input is passed on without its owners.
func TestPass(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	var notes []string
	p := &archive.Packer{Out: tar.NewWriter(&out), LeftOut: func(text string) { notes = append(notes, text) }}
	in := archiveOf(t, &tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o4755, Uid: 1, Gid: 2, Uname: "root"},
		entryOf(tar.TypeChar, "device", ""), entryOf(tar.TypeSymlink, "l", "f"), entryOf(tar.TypeDir, strings.Repeat("d", 200)+"/", ""))
	if err := errors.Join(p.Pass(bytes.NewReader(in)), p.Out.Close()); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range headersOf(t, &out) {
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s belongs to %d:%d %q", h.Name, h.Uid, h.Gid, h.Uname)
		}
		got = append(got, h.FileInfo().Mode().String()+" "+h.Name)
	}
	want := []string{"-rwxr-xr-x f", "Lrw-r--r-- l", "drwxr-xr-x " + strings.Repeat("d", 200) + "/"}
	if !slices.Equal(got, want) || len(notes) != 1 {
		t.Errorf("got %q, left out %q\nwant %q and the device left out", got, notes, want)
	}
	if err := p.Pass(strings.NewReader(strings.Repeat("no archive ", 100))); !errors.Is(err, archive.ErrFormat) {
		t.Errorf("of something else: got %v", err)
	}
}

// TestPackKernel: files of the kernel do not say how large they are.
func TestPackKernel(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"/proc/version", "/proc/self/stat", "/sys/kernel/mm/transparent_hugepage/enabled"} {
		dir, err := os.Open(filepath.Dir(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		var buf bytes.Buffer
		p := archive.Packer{Out: tar.NewWriter(&buf)}
		if err := errors.Join(p.Pack(dir, filepath.Base(name), "f"), p.Out.Close()); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		in := tar.NewReader(&buf)
		h, err := in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(in); err != nil || len(got) < 10 || h.Size != int64(len(got)) {
			t.Errorf("%s: got %q of %d, %v", name, got, h.Size, err)
		}
	}
}

// TestTimes: times of members, also those that a number of nanoseconds has no room for, arrive as they are.
func TestTimes(t *testing.T) {
	t.Parallel()
	dest := filepath.Join(t.TempDir(), "dest")
	for _, year := range []int{1930, 2026, 2262, 2263, 2400, 2446} {
		want := time.Date(year, 5, 1, 1, 2, 3, 0, time.UTC)
		data := archiveOf(t, &tar.Header{Typeflag: tar.TypeReg, Name: "x/f", Mode: 0o600, ModTime: want, Format: tar.FormatPAX})
		if _, err := unpack(t, bytes.NewReader(data), dest); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dest, "f"))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.ModTime().UTC(); !got.Equal(want) && !(year > 2400 && got.Year() > 2037) { // file systems may end before
			t.Errorf("got %v, want %v", got, want)
		}
	}
}
