package identity

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Create makes an account as the reference does: primary group root, in
// the group sudo and allowed to use it without a password where there is one,
// a home made from /etc/skel. It edits the files of /etc itself, because
// images without useradd have them too. Where they cannot be changed, or are
// not there, it is Bare. Its home is the directory for temporary files where it
// cannot be made. It needs root.
func Create(name string, uid int) (*User, error) {
	if name == "" || strings.ContainsAny(name, ":\n/ ") {
		return nil, fmt.Errorf("user name %q is not a word", name)
	}
	if uid < 0 || uid >= math.MaxUint32 { // the largest id means no user
		return nil, fmt.Errorf("user id %d is not one of an account", uid)
	}
	home := filepath.Join("/home", name)
	err := putAccount(name, uid, fmt.Sprintf("%s:x:%d:0::%s:%s", name, uid, home, loginShell()))
	if unchangeable(err) {
		return Bare(name, uint32(uid)), nil
	}
	if err != nil {
		return nil, err
	}
	if err := appendLine("/etc/shadow", name+":!:::::::"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err := allowSudo(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	homeErr := makeHome(home, uid)
	made, err := Lookup(name)
	if err == nil && homeErr != nil {
		made.Home = os.TempDir()
	}
	return made, err
}

// Renumber gives an account of /etc/passwd another id, and its home to that id if
// it was the account's and is not mounted. Where the file cannot be changed it is
// Bare. It needs root.
func Renumber(account *User, uid int) (*User, error) {
	line, err := accountLine(account.Name)
	if err != nil {
		return nil, err
	}
	fields := strings.Split(line, ":")
	if len(fields) < 7 {
		return nil, fmt.Errorf("the line of %q in /etc/passwd has %d fields instead of 7", account.Name, len(fields))
	}
	fields[2] = strconv.Itoa(uid)
	err = putAccount(account.Name, uid, strings.Join(fields, ":"))
	if unchangeable(err) {
		return Bare(account.Name, uint32(uid)), nil //nolint:gosec // the kernel's ids have 32 bits
	}
	if err != nil {
		return nil, err
	}
	changed, err := Lookup(account.Name)
	if err != nil {
		return nil, err
	}
	owner, err := ownerOf(changed.Home)
	switch {
	case errors.Is(err, fs.ErrNotExist) && filepath.Dir(changed.Home) == "/home":
		err = makeHome(changed.Home, uid)
	case err == nil && owner == int(account.UID):
		var mounted bool
		if _, mounted, err = MountOwner(changed.Home); err == nil && !mounted {
			err = HandOver(changed.Home, uid, int(changed.GID))
		}
	default: // a home that was not the account's stays as it is
		err = nil
	}
	if err != nil {
		changed.Home = os.TempDir()
	}
	return changed, nil
}

// putAccount writes the line of an account to /etc/passwd, in the place of the
// one that the account has. It stands before other accounts of the same id, so
// that the id resolves to its name.
func putAccount(name string, uid int, line string) error {
	data, err := os.ReadFile(passwd)
	if err != nil {
		return err
	}
	var lines []string
	at := -1
	for old := range strings.SplitSeq(strings.TrimSuffix(string(data), "\n"), "\n") {
		fields := strings.Split(old, ":")
		if old == "" || fields[0] == name {
			continue
		}
		if at < 0 && len(fields) > 2 && fields[2] == strconv.Itoa(uid) {
			at = len(lines)
		}
		lines = append(lines, old)
	}
	if at < 0 {
		at = len(lines)
	}
	lines = slices.Insert(lines, at, line)
	return replaceFile(passwd, []byte(strings.Join(lines, "\n")+"\n"))
}

// accountLine is the line of an account in /etc/passwd.
func accountLine(name string) (string, error) {
	data, err := os.ReadFile(passwd)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, name+":") {
			return strings.TrimSuffix(line, "\n"), nil
		}
	}
	return "", user.UnknownUserError(name)
}

// passwd is the list of accounts.
const passwd = "/etc/passwd"

// unchangeable reports whether a file of /etc is missing, or is on a file system
// or behind a mount that this process cannot change.
func unchangeable(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) ||
		errors.Is(err, unix.EROFS) || errors.Is(err, unix.EBUSY)
}

// Bare is a user whom no file of /etc knows: its group is root, as that of
// an account that Create makes. Its home is /home/NAME if that can be made
// or is the user's, otherwise the directory for temporary files.
func Bare(name string, uid uint32) *User {
	home := filepath.Join("/home", name)
	if makeHome(home, int(uid)) != nil {
		home = os.TempDir()
	}
	return &User{Name: name, Home: home, UID: uid, GID: 0, Groups: []uint32{0}}
}

func loginShell() string {
	for _, shell := range []string{"/bin/bash", "/bin/sh"} {
		if _, err := os.Stat(shell); err == nil {
			return shell
		}
	}
	return "/bin/false"
}

// allowSudo puts the user into the group sudo, if there is one.
func allowSudo(name string) error {
	data, err := os.ReadFile("/etc/group")
	if err != nil {
		return err
	}
	lines := strings.Split(string(data), "\n")
	for i, line := range lines {
		members, found := strings.CutPrefix(line, "sudo:")
		if !found {
			continue
		}
		if !strings.HasSuffix(members, ":") {
			line += ","
		}
		lines[i] = line + name
		if err := replaceFile("/etc/group", []byte(strings.Join(lines, "\n"))); err != nil {
			return err
		}
		if err := appendLine("/etc/sudoers", "%sudo ALL=(ALL) NOPASSWD:ALL"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// appendLine adds a line to a file that is there, unless the file has it.
func appendLine(path, line string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if len(data) > 0 && data[len(data)-1] != '\n' {
		data = append(data, '\n')
	}
	if bytes.Contains(append([]byte("\n"), data...), []byte("\n"+line+"\n")) {
		return nil
	}
	return replaceFile(path, append(data, line+"\n"...))
}

// replaceFile replaces path by a new file with its mode, owner and group:
// /etc/shadow is readable for its group, and that is not ours.
func replaceFile(path string, data []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	temp := path + ".actiond"
	if err := os.WriteFile(temp, data, info.Mode().Perm()); err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Lchown(temp, int(stat.Uid), int(stat.Gid)); err != nil {
			return errors.Join(err, os.Remove(temp))
		}
	}
	return os.Rename(temp, path)
}

// makeHome makes the home directory from /etc/skel, as far as it is there. A
// mounted one that exists stays as it is if it is read-only or belongs to a user outside of
// the sandbox. Root does not count, since engines make the directories that they
// mount as root.
func makeHome(home string, uid int) error {
	made, err := MakeDir(home, 0o755)
	if err != nil {
		return err
	}
	owner, mounted, err := MountOwner(home)
	if err != nil || mounted && !made && (owner != 0 || errors.Is(unix.Access(home, unix.W_OK), unix.EROFS)) {
		return err
	}
	skel, err := os.OpenRoot("/etc/skel")
	if err == nil {
		defer func() { _ = skel.Close() }()
		if err := copyPlain(skel, home); err != nil {
			return err
		}
	}
	return HandOver(home, uid, 0)
}

// copyPlain copies the regular files at the top of from; skeletons have no others
// in the distributions we know.
func copyPlain(from *os.Root, to string) error {
	entries, err := fs.ReadDir(from.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.Type().IsRegular() {
			continue
		}
		if err := copyFile(from, entry.Name(), filepath.Join(to, entry.Name())); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func copyFile(from *os.Root, name, to string) error {
	in, err := from.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as in the skeleton
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
