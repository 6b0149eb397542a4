// Package identity makes and looks up the user that a sandbox's commands run as,
// does file system work with that user's rights, and gives directories to the
// user.
package identity

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
)

// User is the identity of processes and file accesses. A nil *User is the user of
// this process. It must not be changed once it is in use; its methods may be
// called concurrently.
type User struct {
	Name, Home string
	UID, GID   uint32
	Groups     []uint32
}

// Lookup finds a user by name. The error is a [user.UnknownUserError] if the user
// does not exist, also in an image without /etc/passwd.
func Lookup(name string) (*User, error) {
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

// own reports whether u is the user of this process.
func (u *User) own() bool { return u == nil || int(u.UID) == os.Geteuid() }

// Credential returns the identity for a process to start; nil where it is that of
// this process.
func (u *User) Credential() *syscall.Credential {
	if u.own() {
		return nil
	}
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
}

// EffectiveUID returns the user id, also for a nil User.
func (u *User) EffectiveUID() int {
	if u == nil {
		return os.Geteuid()
	}
	return int(u.UID)
}

// Username returns the name of the account, or the user id where it has no name.
func (u *User) Username() string {
	if u != nil {
		return u.Name
	}
	if me, err := user.Current(); err == nil {
		return me.Username
	}
	return strconv.Itoa(os.Geteuid())
}

// Do runs work with the user's rights on the file system: work cannot open files
// that the user may not open, and the files that it creates belong to the user. Do
// returns the error of work, or an error if it could not take on the rights; work
// has not run then.
//
// Linux keeps these rights per thread, so work must not start goroutines that
// access files. A thread that could not get its own rights back is discarded.
func (u *User) Do(work func() error) error {
	if u.own() {
		return work()
	}
	return onThread(u.takeOn, giveBack, work)
}

// onThread runs work on a thread that takeOn has changed, and changes it back.
func onThread(takeOn, giveBack, work func() error) error {
	var err error
	var panicked any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		runtime.LockOSThread()
		if err = takeOn(); err == nil {
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

// DoEffective runs work on a thread whose effective user is u, which is the one
// that the kernel charges with some resources. It returns the error of work, or
// an error if the thread could not become the user; work has not run then. Work
// must not start goroutines.
func (u *User) DoEffective(work func() error) error {
	if u.own() {
		return work()
	}
	own := os.Geteuid()
	takeOn := func() error {
		if err := setEffectiveUID(int(u.UID)); err != nil {
			return fmt.Errorf("taking on the user id of %s: %w", u.Name, err)
		}
		return nil
	}
	return onThread(takeOn, func() error { return setEffectiveUID(own) }, work)
}

// setEffectiveUID sets the effective user of this thread alone; the function of
// package unix sets that of all threads.
func setEffectiveUID(id int) error {
	const keep = ^uintptr(0)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, uintptr(id), keep); errno != 0 {
		return errno
	}
	return nil
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
// and a call with an invalid id returns the present one (setfsuid(2)).
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
