// Package lookpath finds programs on the PATH of an environment that is not this
// process's.
package lookpath

import (
	"os"
	"path/filepath"
	"strings"
)

// Of returns the PATH of an environment, of several the last; fallback where there
// is none.
func Of(env []string, fallback string) string {
	path := fallback
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			path = value
		}
	}
	return path
}

// Find returns the first program of that name in the directories of a PATH, ""
// where there is none. Relative directories are passed over: they would be this
// process's.
func Find(name, path string) string {
	for _, dir := range filepath.SplitList(path) {
		if file := filepath.Join(dir, name); filepath.IsAbs(file) && Executable(file) {
			return file
		}
	}
	return ""
}

// Executable tells whether a path leads to a file that somebody may run.
func Executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
