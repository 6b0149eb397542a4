package notebook

import (
	_ "embed"
	"path/filepath"
	"slices"

	"github.com/actiond/actiond/executor/internal/proc"
)

//go:embed kernel.py
var launcher string

// The interpreter in the images of the reference. Clients compare its path
// (docs/reference/openhands-protocol.md, section 6).
const referencePython = "/openhands/poetry/openhands-ai-*/bin/python"

// candidates lists the interpreters to try, best first: the reference's, those
// on the PATH of env, and the distribution's.
func candidates(env []string) []string {
	list, _ := filepath.Glob(referencePython) // the pattern is well-formed
	for _, dir := range filepath.SplitList(proc.EnvPath(env, "")) {
		list = append(list, filepath.Join(dir, "python3"))
	}
	list = append(list, "/usr/local/bin/python3", "/usr/bin/python3")
	var found, files []string
	for _, program := range list {
		// A link may lead to the same file as another and mean another
		// environment: only the same directory is the same.
		file := program
		if dir, err := filepath.EvalSymlinks(filepath.Dir(program)); err == nil {
			file = filepath.Join(dir, filepath.Base(program))
		}
		if filepath.IsAbs(program) && proc.IsExecutable(program) && !slices.Contains(files, file) {
			found, files = append(found, program), append(files, file)
		}
	}
	return found
}

// installed reports whether ipykernel lies where program would look for it first.
// No process is started; false may be wrong.
func installed(program string) bool {
	prefix := filepath.Dir(filepath.Dir(program))
	for _, pattern := range []string{
		"lib*/python3*/site-packages", "lib*/python3*/dist-packages", "local/lib/python3*/dist-packages",
	} {
		if found, _ := filepath.Glob(filepath.Join(prefix, pattern, "ipykernel")); len(found) > 0 {
			return true
		}
	}
	return false
}
