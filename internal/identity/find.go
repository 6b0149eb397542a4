package identity

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os/user"
	"path"
	"strconv"
	"strings"

	"github.com/actiond/actiond/internal/hostpath"
)

const (
	// maxDatabase bounds the files of accounts and groups, in bytes.
	maxDatabase = 4 << 20
	// maxGroups is the kernel's bound of the groups of a process (setgroups(2), NGROUPS_MAX).
	maxGroups = 1 << 16
)

// Find returns the user of a name, or of a number in decimal, by /etc/passwd and /etc/group, of
// which an agent may have written every byte. Digits are always a number. One without an account has
// no other group than root's, and "/" for its home, as in containers. The error is a
// [user.UnknownUserError], or says why a file was not read.
func Find(name string) (*User, error) { return findIn("/etc", name) }

func findIn(etc, name string) (*User, error) {
	var found *User
	number := strings.Trim(name, "0123456789") == ""
	uid, ok := accountID(name)
	if number && ok {
		found = &User{Name: name, Home: "/", UID: uid, Groups: []uint32{0}}
	}
	known := false
	err := eachEntry(path.Join(etc, "passwd"), 7, func(f []string) {
		id, okUser := accountID(f[2])
		group, okGroup := accountID(f[3])
		if !known && okUser && okGroup && (number && ok && id == uid || !number && f[0] == name) {
			known = true
			found = &User{Name: f[0], Home: f[5], UID: id, GID: group, Groups: []uint32{group}}
		}
	})
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, user.UnknownUserError(name)
	case !known:
		return found, nil
	}
	in := map[uint32]bool{found.GID: true}
	err = eachEntry(path.Join(etc, "group"), 4, func(f []string) {
		if id, ok := accountID(f[2]); ok && !in[id] && isMember(found.Name, f[3]) {
			in[id] = true
			found.Groups = append(found.Groups, id)
		}
	})
	switch {
	case err != nil:
		return nil, err
	case len(found.Groups) > maxGroups:
		return nil, fmt.Errorf("user %q is in more than %d groups", name, maxGroups)
	}
	return found, nil
}

// isMember reports whether a list with commas has the name.
func isMember(name, list string) bool {
	for member := range strings.SplitSeq(list, ",") {
		if member == name {
			return true
		}
	}
	return false
}

// accountID reads the number of an account or a group; the largest means none (setuid(2)).
func accountID(digits string) (id uint32, ok bool) {
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), err == nil && n < math.MaxUint32
}

// eachEntry calls f with each line of a file that has at least so many fields (passwd(5), group(5)). A missing
// file has none.
func eachEntry(name string, fields int, f func(fields []string)) error {
	data, err := readDatabase(name)
	for line := range strings.Lines(data) {
		entry := strings.SplitN(strings.TrimRight(line, "\r\n"), ":", fields+1)
		// A line that begins with a sign is for the directory services of NIS.
		if len(entry) >= fields && entry[0] != "" && !strings.ContainsAny(entry[0][:1], "#+-") && !strings.Contains(line, "\x00") {
			f(entry)
		}
	}
	return err
}

// readDatabase reads a regular file, which may be a link of root's; "" where it is missing. Neither
// the size nor the time can be chosen by its writer: files of the kernel have the size 0, and
// others than regular ones are not opened.
func readDatabase(name string) (string, error) {
	at, err := hostpath.Open(name, hostpath.OwnLinks)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = at.Close() }()
	info, err := at.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file", name)
	case info.Size() > maxDatabase:
		return "", fmt.Errorf("%s has more than %d bytes", name, maxDatabase)
	}
	file, err := at.Reader()
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	data := make([]byte, info.Size())
	n, err := io.ReadFull(file, data)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // it was shortened
		err = nil
	}
	return string(data[:n]), err
}
