package files_test

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/testhelp"
)

func listPage(t *testing.T, l files.Listing) ([]string, string) {
	t.Helper()
	entries, next, err := l.Page()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names, next
}

func listAll(t *testing.T, l files.Listing) []string {
	t.Helper()
	var all []string
	for {
		names, next := listPage(t, l)
		all = append(all, names...)
		if next == "" {
			return all
		}
		if l.After == next || len(names) > l.Limit {
			t.Fatalf("page %q behind %q goes on at %q", names, l.After, next)
		}
		last, ok := files.DecodeCursor(files.EncodeCursor(next))
		if !ok || last != next {
			t.Fatalf("the cursor of %q is read as %q, %v", next, last, ok)
		}
		l.After = next
	}
}

func openDir(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Pages of every size have each name once, in the order of the components of its path.
func TestListing(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	letters := []string{"a", "b", "a.", "a-b", "a b", "\xff", "é", "a\n", "0", "A"}
	for range 20 {
		root := t.TempDir()
		dirs := []string{""}
		var want []string
		for range 60 {
			name := filepath.Join(dirs[random.IntN(len(dirs))], letters[random.IntN(len(letters))]+letters[random.IntN(len(letters))])
			if slices.Contains(want, name) {
				continue
			}
			want = append(want, name)
			switch random.IntN(3) {
			case 0:
				if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
					t.Fatal(err)
				}
				dirs = append(dirs, name)
			case 1:
				if err := os.Symlink(root, filepath.Join(root, name)); err != nil {
					t.Fatal(err)
				}
			default:
				testhelp.WriteFile(t, filepath.Join(root, name), "", 0o600)
			}
		}
		slices.SortFunc(want, func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) })
		top := slices.DeleteFunc(slices.Clone(want), func(name string) bool { return strings.Contains(name, "/") })
		dir := openDir(t, root)
		for _, limit := range []int{1, 2, 3, 7, len(want), 1000} {
			for _, bytes := range []int{1, 20, 1 << 20} {
				l := files.Listing{Dir: dir, Limit: limit, Bytes: bytes}
				if got := listAll(t, l); !slices.Equal(got, top) {
					t.Fatalf("limit %d, %d bytes: got %q, want %q", limit, bytes, got, top)
				}
				l.Recursive = true
				if got := listAll(t, l); !slices.Equal(got, want) {
					t.Fatalf("recursive, limit %d, %d bytes: got %q, want %q", limit, bytes, got, want)
				}
			}
		}
	}
}

// A name that is removed or replaced between pages leaves all others.
func TestListingChanges(t *testing.T) {
	t.Parallel()
	root, outside := t.TempDir(), t.TempDir()
	for _, name := range []string{"a/1/x", "a/1/y", "a/2", "b", "c/d"} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		testhelp.WriteFile(t, filepath.Join(root, name), "", 0o600)
	}
	testhelp.WriteFile(t, filepath.Join(outside, "z"), "", 0o600)
	dir := openDir(t, root)
	l := files.Listing{Dir: dir, Recursive: true, Limit: 2, Bytes: 1 << 20}
	names, next := listPage(t, l)
	if !slices.Equal(names, []string{"a", "a/1"}) || next != "a/1" {
		t.Fatalf("got %q, %q", names, next)
	}
	if err := errors.Join(os.RemoveAll(root+"/a/1"), os.Symlink(outside, root+"/a/1")); err != nil {
		t.Fatal(err)
	}
	l.After = next
	if got := listAll(t, l); !slices.Equal(got, []string{"a/2", "b", "c", "c/d"}) {
		t.Errorf("got %q", got)
	}
	l.After = "a/1/w"
	if got := listAll(t, l); !slices.Equal(got, []string{"a/2", "b", "c", "c/d"}) {
		t.Errorf("got %q", got)
	}
	l.After, l.Ended = "", func() error { return errors.ErrUnsupported }
	if _, _, err := l.Page(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("ended: got %v", err)
	}
}

// A directory that cannot be listed any more in the middle of its names ends the listing: the rest of
// them would be missing. One that could not be listed from the start was reported with its name.
func TestListingBroken(t *testing.T) {
	t.Parallel()
	own := strconv.Itoa(os.Getpid()) // which no listing opens, whoever asks
	l := files.Listing{Dir: openDir(t, "/proc"), Recursive: true, Limit: 1, Bytes: 1 << 20, After: own + "/cmdline"}
	if entries, next, err := l.Page(); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), own) {
		t.Errorf("in its middle: got %v, %q, %v", entries, next, err)
	}
	l.After = own
	if _, _, err := l.Page(); err != nil {
		t.Errorf("behind its name: got %v", err)
	}
}

func TestDecodeCursor(t *testing.T) {
	t.Parallel()
	for _, last := range []string{"/etc", "..", "a/../b", "a//b", "a/", ".", "a\x00", strings.Repeat("a", 5000)} {
		if got, ok := files.DecodeCursor(files.EncodeCursor(last)); ok {
			t.Errorf("%.20q is taken as %q", last, got)
		}
	}
	if _, ok := files.DecodeCursor("a/b"); ok {
		t.Error("a cursor that is not base64url is taken")
	}
}
