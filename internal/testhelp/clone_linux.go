package testhelp

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Cloner returns a function that clones files in a directory: nil for the kernel's, and where the file system has none one
// that copies.
func Cloner(tb testing.TB, dir string) func(dst, src int) error {
	tb.Helper()
	src, err := os.CreateTemp(dir, "")
	if err != nil {
		tb.Fatal(err)
	}
	dst, err := os.CreateTemp(dir, "")
	if err != nil {
		tb.Fatal(err)
	}
	for _, f := range []*os.File{src, dst} {
		defer os.Remove(f.Name())
		defer f.Close()
	}
	if unix.IoctlFileClone(int(dst.Fd()), int(src.Fd())) == nil {
		return nil
	}
	return copyFile
}

func copyFile(dst, src int) error {
	data := make([]byte, 1<<20)
	for at := int64(0); ; {
		n, err := unix.Pread(src, data, at)
		if err != nil || n == 0 {
			return err
		}
		if _, err := unix.Pwrite(dst, data[:n], at); err != nil {
			return err
		}
		at += int64(n)
	}
}
