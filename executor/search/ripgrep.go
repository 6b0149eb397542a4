package search

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"

	"github.com/actiond/actiond/executor/spawn"
)

const (
	// worthIt is how many bytes there must be to search before a process is
	// started for them: in less, this one is faster.
	worthIt = 1 << 20
	// maxBatch and maxArgs bound what is searched at a time, so that enough can
	// be found early and the command line stays below the kernel's 2 MiB.
	maxBatch = 256 << 20
	maxArgs  = 512 << 10
	// shortest is the shortest text that rules out enough files.
	shortest = 2
)

// batchSize is how many of the files are searched next.
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

// narrow lets ripgrep, where there is one, drop the files that do not hold the
// text that every match holds. Lines are then found here as without it: so the
// results are the same. A program that fails drops nothing. It runs as the
// user, and is killed when ctx ends.
func (s *Searcher) narrow(ctx context.Context, files []file, literal string) []file {
	var size int64
	for _, f := range files {
		size += f.size
	}
	if s.cfg.Ripgrep == "" || len(literal) < shortest || size < worthIt || !plainCase(literal) {
		return files
	}
	args := []string{
		"--no-config", "--files-with-matches", "--null", "--text", "--encoding=none", "--fixed-strings", "--no-messages", "--color=never",
		"--ignore-case",
	} // which a part of the pattern may do
	args = append(args, "--regexp="+literal, "--")
	for _, f := range files {
		args = append(args, f.path)
	}
	cmd := exec.CommandContext(ctx, s.cfg.Ripgrep, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"LC_ALL=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: s.cfg.Credential}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out names
	cmd.Stdout = &out
	err := spawn.Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		return nil // it found nothing
	} else if err != nil {
		return files
	}
	return named(files, out.list.Bytes())
}

// names takes what ripgrep prints, and not more than it was given: the program
// is the image's, and may be anything.
type names struct{ list bytes.Buffer }

func (n *names) Write(p []byte) (int, error) {
	if n.list.Len()+len(p) > 2*maxArgs {
		return 0, errors.New("more names than there are files")
	}
	return n.list.Write(p)
}

// named keeps the files whose paths are in a list with a NUL after each.
func named(files []file, list []byte) []file {
	names := map[string]bool{}
	for name := range bytes.SplitSeq(list, []byte{0}) {
		names[string(name)] = true
	}
	var kept []file
	for _, f := range files {
		if names[f.path] {
			kept = append(kept, f)
		}
	}
	return kept
}

// plainCase tells whether both programs agree on what the other case of each
// letter is, which they do for ASCII.
func plainCase(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 || s[i] < ' ' {
			return false
		}
	}
	return true
}
