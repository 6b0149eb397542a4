package identity_test

import (
	"errors"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/testhelp"
)

// nobody is a user that every Debian has.
const nobody = "nobody"

func other(t *testing.T) *identity.User {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can take on the rights of another user")
	}
	u, err := identity.Lookup(nobody)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestLookup(t *testing.T) {
	t.Parallel()
	u, err := identity.Lookup("root")
	if err != nil || u.UID != 0 || u.Home == "" {
		t.Errorf("got %+v, %v", u, err)
	}
	if _, err := identity.Lookup("no-such-user"); !errors.As(err, new(user.UnknownUserError)) {
		t.Errorf("got %v", err)
	}
}

// Files are opened with the user's rights, many at a time, and the server gets
// its own back.
func TestDo(t *testing.T) {
	t.Parallel()
	u := other(t)
	dir := testhelp.PublicDir(t)
	secret := filepath.Join(dir, "secret")
	testhelp.WriteFile(t, secret, "x", 0o600)
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			made := filepath.Join(dir, strconv.Itoa(i))
			err := u.Do(func() error {
				if _, err := os.ReadFile(secret); !errors.Is(err, fs.ErrPermission) {
					t.Errorf("reading the secret: got %v", err)
				}
				return os.WriteFile(made, nil, 0o600)
			})
			if err != nil {
				t.Error(err)
				return
			}
			info, err := os.Stat(made)
			if err != nil || info.Sys().(*syscall.Stat_t).Uid != u.UID {
				t.Errorf("got %v, %v; want the user's file", info, err)
			}
			if _, err := os.ReadFile(secret); err != nil {
				t.Errorf("the server's own rights: %v", err)
			}
		})
	}
	all.Wait()
	want := errors.New("as is")
	if err := u.Do(func() error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
	func() {
		defer func() {
			if got := recover(); got != "boom" {
				t.Errorf("got panic %v", got)
			}
		}()
		_ = u.Do(func() error { panic("boom") })
	}()
}

// The kernel charges to the user what work takes, and the server's threads are its
// own again.
func TestDoEffective(t *testing.T) {
	t.Parallel()
	u := other(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if err := u.DoEffective(func() error {
				if got := os.Geteuid(); got != int(u.UID) {
					t.Errorf("got the effective user %d, want %d", got, u.UID)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			if got := os.Geteuid(); got != 0 {
				t.Errorf("afterwards: got the effective user %d", got)
			}
		})
	}
	all.Wait()
}
