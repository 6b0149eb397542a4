package search

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"

	"github.com/actiond/actiond/executor/internal/proc"
)

const (
	// worthIt is the least number of bytes to search by a process. Below it
	// this package is faster.
	worthIt = 1 << 20
	// maxBatch and maxArgs bound one run of ripgrep, so that the search can end
	// early and the command line stays below the 2 MiB of the kernel.
	maxBatch = 256 << 20
	maxArgs  = 512 << 10
	// shortest is the length of the shortest text that rules out enough files.
	shortest = 2
)

// batchSize returns the number of files to search next.
func batchSize(files []file) int {
	var bytes int64
	args := 0
	for i, f := range files {
		bytes += f.size
		args += len(f.path) + 16 // the pointer to it, and its end
		if i > 0 && (bytes > maxBatch || args > maxArgs) {
			return i
		}
	}
	return len(files)
}

// narrow removes, by ripgrep if it exists, the files without the text that
// every match contains. This package finds the lines in the rest, so the
// results are the same. If the program fails, narrow removes no file; nor does it
// remove a single one, for the query may name that. The program runs as the user, and
// is killed when ctx ends.
func (s *Searcher) narrow(ctx context.Context, files []file, literal string) []file {
	var size int64
	for _, f := range files {
		if f.size <= maxWhole {
			size += f.size
		}
	}
	if s.cfg.Ripgrep == "" || len(files) == 1 || len(literal) < shortest || size < worthIt || !plainCase(literal) {
		return files
	}
	args := []string{
		"--no-config", "--files-with-matches", "--null", "--text", "--fixed-strings", "--no-messages",
		"--color=never",
		"--ignore-case",
	} // as a part of the pattern may
	args = append(args, "--regexp="+literal, "--")
	for _, f := range files {
		if f.size <= maxWhole { // it would read a line of any length into memory
			args = append(args, f.path)
		}
	}
	cmd := exec.CommandContext(ctx, s.cfg.Ripgrep, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: s.cfg.User.Credential()}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out names
	cmd.Stdout = &out
	err := proc.Start(cmd)
	if err == nil {
		proc.AwaitExit(cmd.Process.Pid)
		_ = cmd.Cancel() // processes that it left behind keep the output open
		err = cmd.Wait()
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		return named(files, nil) // no match
	} else if err != nil {
		return files
	}
	return named(files, out.list.Bytes())
}

// names collects the output of ripgrep, at most the names that it was given:
// the program comes with the image and may be hostile.
type names struct{ list bytes.Buffer }

func (n *names) Write(p []byte) (int, error) {
	if n.list.Len()+len(p) > 2*maxArgs {
		return 0, errors.New("more names than there are files")
	}
	return n.list.Write(p)
}

// named returns the files whose paths are in a list with a NUL after each, and those
// that ripgrep was not given.
func named(files []file, list []byte) []file {
	names := map[string]bool{}
	for name := range bytes.SplitSeq(list, []byte{0}) {
		names[string(name)] = true
	}
	var kept []file
	for _, f := range files {
		if names[f.path] || f.size > maxWhole {
			kept = append(kept, f)
		}
	}
	return kept
}

// plainCase reports whether both programs agree on the other case of each
// letter, as they do for ASCII.
func plainCase(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 || s[i] < ' ' {
			return false
		}
	}
	return true
}
