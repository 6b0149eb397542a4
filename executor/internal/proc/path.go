package proc

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// EnvPath returns the PATH of an environment, of several the last; fallback where there
// is none.
func EnvPath(env []string, fallback string) string {
	path := fallback
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			path = value
		}
	}
	return path
}

// LookPath returns the first program of that name in the directories of a PATH, ""
// where there is none. Relative directories are passed over: they would be this
// process's.
func LookPath(name, path string) string {
	for _, dir := range filepath.SplitList(path) {
		if file := filepath.Join(dir, name); filepath.IsAbs(file) && IsExecutable(file) {
			return file
		}
	}
	return ""
}

// IsExecutable reports whether path names a regular file with an executable bit.
func IsExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// Environ is an environment with variables over it, sorted.
func Environ(base []string, over map[string]string) []string {
	env := slices.DeleteFunc(slices.Clone(base), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		_, ok := over[name]
		return ok
	})
	for _, name := range slices.Sorted(maps.Keys(over)) {
		env = append(env, name+"="+over[name])
	}
	return env
}
