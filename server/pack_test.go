package server_test

import (
	"archive/tar"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/server"
)

// packed are the members of the archive of a path, as NAME=CONTENT, NAME->TARGET or
// NAME/, and what it says of files that are left out.
func packed(t *testing.T, s *server.Server, path string) (status int, members, leftOut []string) {
	t.Helper()
	w := get("/v1/pack?path=" + url.QueryEscape(path)).send(s)
	if w.Code != http.StatusOK {
		return w.Code, nil, []string{w.Body.String()}
	}
	for r := tar.NewReader(w.Body); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(members)
			return w.Code, members, leftOut
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		switch h.Typeflag {
		case tar.TypeXGlobalHeader:
			leftOut = append(leftOut, h.PAXRecords["ACTIOND.leftout"]+h.PAXRecords["ACTIOND.unreadable"])
		case tar.TypeSymlink:
			members = append(members, h.Name+"->"+h.Linkname)
		case tar.TypeDir:
			members = append(members, h.Name)
		default:
			members = append(members, h.Name+"="+string(data))
		}
	}
}

func TestPack(t *testing.T) {
	t.Parallel()
	dir, outside := t.TempDir(), t.TempDir()
	err := errors.Join(os.MkdirAll(dir+"/d/empty", 0o755), os.WriteFile(dir+"/d/f", []byte("text"), 0o640), os.Symlink("../../x", dir+"/d/l"),
		os.Symlink(outside, dir+"/d/out"), os.WriteFile(outside+"/secret", []byte("secret"), 0o600), syscall.Mkfifo(dir+"/d/fifo", 0o600),
		os.Symlink("nowhere", dir+"/dangling"))
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t)
	for _, tt := range []struct {
		path   string
		status int
		want   []string
	}{
		{dir + "/d/f", 200, []string{"f=text"}},
		{dir + "/d/../d/f/", 200, []string{"f=text"}},
		{dir + "/d/l", 200, []string{"l->../../x"}},
		{dir + "/dangling", 200, []string{"dangling->nowhere"}},
		{dir + "/d", 200, []string{"d/", "d/empty/", "d/f=text", "d/l->../../x", "d/out->" + outside}},
		{dir + "/d/out/secret", 200, []string{"secret=secret"}}, // a link on the way is followed
		{dir + "/none", 404, nil},
		{dir + "/none/f", 404, nil},
		{dir + "/d/f/f", 400, nil},
		{dir + "/d/fifo", 400, nil},
		{"/dev/null", 400, nil},
		{"/proc/uptime", 400, nil},
		{"/proc/self/environ", 403, nil},
		{"/proc/self/fd/0", 403, nil},
		{"/proc", 200, []string{"proc/"}},
		{"d", 404, nil}, // relative to the working directory
	} {
		status, members, leftOut := packed(t, s, tt.path)
		if status != tt.status || !slices.Equal(members, tt.want) {
			t.Errorf("%s: got %d %q (%q), want %d %q", tt.path, status, members, leftOut, tt.status, tt.want)
		}
	}
	if _, _, leftOut := packed(t, s, dir+"/d"); !slices.Equal(leftOut, []string{"d/fifo is neither file nor directory nor link"}) {
		t.Errorf("left out: %q", leftOut)
	}
}

// TestPackAsUser has links of the agent lead to files of root, and files that the agent
// may not read.
func TestPackAsUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root has the rights that must not be used")
	}
	dir := testhelp.PublicDir(t)
	const uid, gid = 54321, 54322
	err := errors.Join(os.Chmod(dir, 0o755), os.Mkdir(dir+"/closed", 0o700), os.WriteFile(dir+"/closed/secret", []byte("secret"), 0o644),
		os.Mkdir(dir+"/through", 0o711), os.WriteFile(dir+"/through/f", []byte("fine"), 0o644),
		os.Mkdir(dir+"/work", 0o755), os.Symlink("../closed/secret", dir+"/work/link"), os.Symlink("../closed", dir+"/work/dir"),
		os.WriteFile(dir+"/work/theirs", []byte("secret"), 0o600), os.WriteFile(dir+"/work/mine", []byte("mine"), 0o600), os.Chown(dir+"/work/mine", uid, gid))
	if err != nil {
		t.Fatal(err)
	}
	user := &identity.User{Name: "agent", UID: uid, GID: gid, Groups: []uint32{gid}}
	s := newServer(t, func(cfg *server.Config) { cfg.As = user.Do })
	for _, name := range []string{"closed", "closed/secret", "work/dir/secret", "work/theirs"} {
		if status, members, _ := packed(t, s, filepath.Join(dir, name)); status != http.StatusForbidden {
			t.Errorf("%s: got %d %q", name, status, members)
		}
	}
	if status, members, said := packed(t, s, dir+"/through/f"); status != 200 || !slices.Equal(members, []string{"f=fine"}) {
		t.Errorf("in a directory that cannot be listed: %d %q %q", status, members, said)
	}
	status, members, leftOut := packed(t, s, dir)
	base := filepath.Base(dir)
	if status != 200 || strings.Contains(strings.Join(members, " "), "=secret") || !slices.Contains(members, base+"/work/mine=mine") {
		t.Errorf("got %d %q", status, members)
	}
	slices.Sort(leftOut)
	want := []string{"/closed may not be read by the user of the commands", "/through may not be read by the user of the commands", "/work/theirs may not be read by the user of the commands"}
	for i := range want {
		want[i] = base + want[i] + "1" // of the record that says that something could not be read
	}
	if !slices.Equal(leftOut, want) {
		t.Errorf("left out: %q, want %q", leftOut, want)
	}
}
