package identity_test

import (
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
)

// etcOf returns a directory with these files.
func etcOf(t *testing.T, passwd, group string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"passwd": passwd, "group": group} {
		testhelp.WriteFile(t, filepath.Join(dir, name), text, 0o600)
	}
	return dir
}

const accounts = "root:x:0:0:root:/root:/bin/bash\n" +
	"alice:x:1000:100:A:/home/alice:/bin/sh\r\n" +
	"1001:x:7:7::/:\n" + // digits are a number
	"bob:x:1001:1001::/home/bob:/bin/false\n" +
	"alice:x:0:0::/root:/bin/sh\n" + // the first one counts
	"toor:x:0:5::/:/bin/sh\n" +
	"+nis::::::\n-out:x:3:3::/:/bin/sh\n#bob:x:9:9::/:/bin/sh\n:x:4:4::/:/bin/sh\n" +
	"short:x:5:5::/\nsigned:x:+6:-6::/:/bin/sh\nhuge:x:4294967296:0::/:/bin/sh\nnone:x:4294967295:0::/:/bin/sh\nletters:x:a:0::/:/bin/sh\n" +
	"nul\x00:x:8:8::/:/bin/sh\nhome:x:8:8::/a\x00b:/bin/sh\n" +
	"last:x:10:10::/last:/bin/sh"

const groups = "root:x:0:\nusers:x:100:alice\nsudo:x:27:bob,alice\nagain:x:27:alice\nbad:x:-1:alice\nnone:x:4294967295:alice\nshort:x:9\nalmost:x:11:alices,malice"

func TestFind(t *testing.T) {
	t.Parallel()
	dir := etcOf(t, accounts, groups)
	for name, want := range map[string]*identity.User{
		"root":  {Name: "root", Home: "/root", Groups: []uint32{0}},
		"0":     {Name: "root", Home: "/root", Groups: []uint32{0}},
		"00":    {Name: "root", Home: "/root", Groups: []uint32{0}},
		"alice": {Name: "alice", Home: "/home/alice", UID: 1000, GID: 100, Groups: []uint32{100, 27}},
		"1000":  {Name: "alice", Home: "/home/alice", UID: 1000, GID: 100, Groups: []uint32{100, 27}},
		"1001":  {Name: "bob", Home: "/home/bob", UID: 1001, GID: 1001, Groups: []uint32{1001, 27}},
		"toor":  {Name: "toor", Home: "/", GID: 5, Groups: []uint32{5}},
		"last":  {Name: "last", Home: "/last", UID: 10, GID: 10, Groups: []uint32{10}},
		"4242":  {Name: "4242", Home: "/", UID: 4242, Groups: []uint32{0}},
		// Nobody.
		"": nil, "eve": nil, "ALICE": nil, "root\n": nil, "root:x": nil, " 0x0": nil, "0x0": nil, "-1": nil, "+0": nil, " 0": nil, "1e3": nil,
		"4294967295": nil, "4294967296": nil, "99999999999999999999": nil, strings.Repeat("9", 1<<16): nil, "٠": nil,
		"+nis": nil, "-out": nil, "#bob": nil, "short": nil, "signed": nil, "huge": nil, "none": nil, "letters": nil, "nul": nil, "nul\x00": nil, "home": nil,
	} {
		got, err := identity.FindIn(dir, name)
		switch {
		case want == nil && !errors.As(err, new(user.UnknownUserError)):
			t.Errorf("%.20q: got %+v, %v, want no user", name, got, err)
		case want != nil && (err != nil || !reflect.DeepEqual(got, want)):
			t.Errorf("%.20q: got %+v, %v, want %+v", name, got, err, want)
		}
	}
	// An image without the files has numbers, and this system is read as os/user reads it.
	if got, err := identity.FindIn(t.TempDir(), "5"); err != nil || got.UID != 5 || got.Home != "/" {
		t.Errorf("without files: got %+v, %v", got, err)
	}
	if _, err := identity.FindIn(t.TempDir(), "root"); !errors.As(err, new(user.UnknownUserError)) {
		t.Errorf("without files: got %v", err)
	}
	for _, name := range []string{"root", nobody, "daemon"} {
		want, err := identity.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := identity.Find(name); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
		}
	}
}

// A file that an agent of root's puts in the place of the databases blocks no read and fills no memory.
func TestFindOfTraps(t *testing.T) {
	t.Parallel()
	base := etcOf(t, accounts, groups)
	at := func(name string) string { return filepath.Join(base, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(syscall.Mkfifo(at("fifo"), 0o666))
	must(os.WriteFile(at("sparse"), nil, 0o600))
	must(os.Truncate(at("sparse"), 1<<40))
	must(os.WriteFile(at("groups"), []byte(strings.Repeat("g:x:1:alice\n", 10)+manyGroups(1<<16+1)), 0o600))
	for name, tt := range map[string]struct{ passwd, group, want string }{
		"a FIFO":            {"fifo", "group", "not a regular file"},
		"a device":          {"/dev/zero", "group", "not a regular file"},
		"a directory":       {"/", "group", "not a regular file"},
		"a file too large":  {"sparse", "group", "has more than"},
		"links in a circle": {"passwd", "group", "symbolic links"},
		"a file of proc":    {"/proc/self/status", "group", "unknown user"}, // its size is 0
		"groups in a FIFO":  {"../passwd", "fifo", "not a regular file"},
		"too many groups":   {"../passwd", "groups", "more than 65536 groups"},
	} {
		etc := filepath.Join(base, strings.ReplaceAll(name, " ", "-"))
		must(os.Mkdir(etc, 0o755))
		for file, target := range map[string]string{"passwd": tt.passwd, "group": tt.group} {
			if file != target && !filepath.IsAbs(target) && !strings.HasPrefix(target, "..") {
				target = at(target)
			}
			must(os.Symlink(target, filepath.Join(etc, file)))
		}
		if got, err := identity.FindIn(etc, "alice"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %+v, %v, want %q", name, got, err, tt.want)
		}
	}
	if os.Geteuid() != 0 {
		return // only root can make links of other users
	}
	etc := at("linked")
	must(os.Mkdir(etc, 0o755))
	must(os.Symlink(at("passwd"), filepath.Join(etc, "passwd")))
	if got, err := identity.FindIn(etc, "alice"); err != nil || got.UID != 1000 {
		t.Errorf("a link of root's: got %+v, %v", got, err)
	}
	must(os.Lchown(filepath.Join(etc, "passwd"), 1000, 0))
	if got, err := identity.FindIn(etc, "alice"); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link of another user: got %+v, %v", got, err)
	}
}

// manyGroups are n groups that alice is in.
func manyGroups(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("g:x:" + strconv.Itoa(i) + ":alice\n")
	}
	return b.String()
}
