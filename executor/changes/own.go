package changes

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// errReplaced says that an agent that is this process's user put another file in the place of one of the state directory.
var errReplaced = errors.New("it is not the file that the server wrote")

// openOwn opens a file of the state directory, and waits for nothing. It fails with errReplaced for what is no regular file, and for one
// that has another name, by which it may be any file.
func openOwn(root *os.Root, name string, flags int) (*os.File, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.Mode().IsRegular() || st.Nlink > 1 {
		return nil, errReplaced
	}
	f, err := root.OpenFile(name, flags|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if opened, err := f.Stat(); err != nil || !os.SameFile(info, opened) {
		return nil, errors.Join(errReplaced, err, f.Close())
	}
	return f, nil
}

// replaceOwn writes a file of the state directory in the place of whatever has its name.
func replaceOwn(root *os.Root, name string, data []byte) error {
	temp := name + ".tmp"
	err := errors.Join(root.RemoveAll(temp), writeNew(root, temp, data))
	if err == nil {
		err = root.Rename(temp, name)
	}
	if info, failed := root.Lstat(name); err != nil && failed == nil && info.IsDir() {
		err = errors.Join(root.RemoveAll(name), root.Rename(temp, name))
	}
	return err
}

func writeNew(root *os.Root, name string, data []byte) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}
