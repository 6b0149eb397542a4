package executor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/bash"
	"github.com/actiond/actiond/executor/edit"
	"github.com/actiond/actiond/executor/lint"
)

// User is who commands and file accesses are done as. A nil User is whoever
// runs this process.
type User struct {
	Name, Home string
	UID, GID   uint32
	Groups     []uint32
}

// LookupUser finds a user by name. The error is a user.UnknownUserError if there
// is none, also where there are no accounts at all.
func LookupUser(name string) (*User, error) {
	u, err := user.Lookup(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, user.UnknownUserError(name)
	}
	if err != nil {
		return nil, err
	}
	found := &User{Name: u.Username, Home: u.HomeDir}
	groups, err := u.GroupIds()
	if errors.Is(err, fs.ErrNotExist) { // no /etc/group
		groups, err = []string{u.Gid}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking up the groups of %q: %w", name, err)
	}
	if found.UID, err = parseID(u.Uid); err != nil {
		return nil, err
	}
	if found.GID, err = parseID(u.Gid); err != nil {
		return nil, err
	}
	for _, g := range groups {
		gid, err := parseID(g)
		if err != nil {
			return nil, err
		}
		found.Groups = append(found.Groups, gid)
	}
	return found, nil
}

func parseID(s string) (uint32, error) {
	id, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("user or group id %q: %w", s, err)
	}
	return uint32(id), nil
}

// self tells whether the user is the one this process runs as already.
func (u *User) self() bool { return u == nil || int(u.UID) == os.Geteuid() }

func (u *User) credential() *bash.User {
	if u.self() {
		return nil
	}
	return &bash.User{UID: u.UID, GID: u.GID, Groups: u.Groups}
}

// lint is the same for interpreters that look at a text.
func (u *User) lint() *lint.User {
	if u.self() {
		return nil
	}
	return &lint.User{UID: u.UID, GID: u.GID, Groups: u.Groups}
}

// processCredential is credential in the form that package notebook takes.
func (u *User) processCredential() *syscall.Credential {
	if u.self() {
		return nil
	}
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
}

func (u *User) name() string {
	if u != nil {
		return u.Name
	}
	if me, err := user.Current(); err == nil {
		return me.Username
	}
	return strconv.Itoa(os.Geteuid())
}

func (u *User) owner() *edit.Owner {
	if u.self() {
		return nil
	}
	return &edit.Owner{UID: int(u.UID), GID: int(u.GID)}
}

// As runs work with the user's rights on the file system: what the user may not
// open, work may not, and what work makes is the user's. It returns what work
// returns, or an error where the rights could not be taken on; work has not
// run then.
//
// Linux keeps these rights for each thread, so work must not start goroutines
// that access files. A thread that could not get its own rights back is
// discarded.
func (u *User) As(work func() error) error {
	if u.self() {
		return work()
	}
	var err error
	var panicked any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		runtime.LockOSThread()
		if err = u.takeOn(); err == nil {
			err = work()
		}
		if giveBack() == nil {
			runtime.UnlockOSThread() // otherwise the thread ends with this goroutine
		}
	}()
	<-done
	if panicked != nil {
		panic(panicked)
	}
	return err
}

// takeOn changes the rights of this thread. The user comes last: without the
// superuser's the groups cannot be changed.
func (u *User) takeOn() error {
	if err := setGroups(u.Groups); err != nil {
		return fmt.Errorf("taking on the groups of %s: %w", u.Name, err)
	}
	if err := setFSGID(int(u.GID)); err != nil {
		return fmt.Errorf("taking on the group of %s: %w", u.Name, err)
	}
	if err := setFSUID(int(u.UID)); err != nil {
		return fmt.Errorf("taking on the rights of %s: %w", u.Name, err)
	}
	return nil
}

// giveBack undoes takeOn.
func giveBack() error {
	if err := setFSUID(os.Geteuid()); err != nil {
		return err
	}
	if err := setFSGID(os.Getegid()); err != nil {
		return err
	}
	return setGroups(ownGroups)
}

// The kernel does not say when it refuses: the answer is the id before the call,
// and asking with one that cannot be tells what it is now (setfsuid(2)).
func setFSUID(id int) error {
	_, _ = unix.SetfsuidRetUid(id)
	if now, _ := unix.SetfsuidRetUid(-1); now != id {
		return unix.EPERM
	}
	return nil
}

func setFSGID(id int) error {
	_, _ = unix.SetfsgidRetGid(id)
	if now, _ := unix.SetfsgidRetGid(-1); now != id {
		return unix.EPERM
	}
	return nil
}

// ownGroups are the groups this process started with.
var ownGroups = func() []uint32 {
	ids, _ := os.Getgroups()
	groups := make([]uint32, len(ids))
	for i, id := range ids {
		groups[i] = uint32(id)
	}
	return groups
}()

// setGroups sets the groups of this thread alone; the function of package unix
// sets those of all threads.
func setGroups(groups []uint32) error {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0]) //nolint:gosec // the system call reads that many of them
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return errno
	}
	return nil
}
