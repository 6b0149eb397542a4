package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/document"
)

// name is the first argument of a child, by which it knows that it is one.
const name = "actiond-worker"

// exitFailed is the exit code of a child that cannot do its task.
const exitFailed = 3

// input is the descriptor that a child reads.
const input = 3

// A child does its task before main, because tests have no place in theirs, and because
// packages that it does without are not yet set up.
func init() { //nolint:gochecknoinits // see above
	if len(os.Args) == 1 && os.Args[0] == name {
		syscall.Exit(serve())
	}
}

// serve does the task on standard input and returns the exit code.
func serve() int {
	var t task
	if err := json.NewDecoder(os.Stdin).Decode(&t); err != nil {
		return exitFailed
	}
	if err := limit(t); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitFailed
	}
	var a answer
	result, err := do(t, os.NewFile(input, "input"))
	if err == nil {
		a.Result, err = json.Marshal(result)
	}
	if err != nil {
		a = answer{Failure: err.Error(), Result: json.RawMessage("null")}
	}
	out, err := json.Marshal(a)
	if err == nil {
		_, err = os.Stdout.Write(out)
	}
	if err != nil {
		return exitFailed
	}
	return 0
}

// limit bounds this process. It may write to the files that it has and to no other.
func limit(t task) error {
	used, err := addressSpace()
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(int64(t.Memory) * 3 / 4) //nolint:gosec // far below 2^63
	return errors.Join(
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		lower(unix.RLIMIT_CORE, 0),
		lower(unix.RLIMIT_NOFILE, 16),
		lower(unix.RLIMIT_FSIZE, 1<<20),        // its complaint
		lower(unix.RLIMIT_CPU, uint64(t.Time)), //nolint:gosec // not negative
		lower(unix.RLIMIT_AS, used+t.Memory),
	)
}

// addressSpace returns the bytes that this process has mapped.
func addressSpace() (uint64, error) {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	pages, _, _ := strings.Cut(string(statm), " ")
	n, err := strconv.ParseUint(pages, 10, 64)
	return n * uint64(os.Getpagesize()), err //nolint:gosec // a page has a size
}

// lower sets a limit, unless it is lower.
func lower(resource int, most uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return err
	}
	now.Max = min(now.Max, most)
	now.Cur = min(now.Cur, now.Max)
	return unix.Setrlimit(resource, &now)
}

// do carries out the task. A panic is an error of the input: the libraries that read it
// panic where it is damaged.
func do(t task, in *os.File) (result any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it is damaged: %v", p)
		}
	}()
	switch {
	case t.Document != nil:
		return document.Convert(in, t.Document.Size, t.Document.Request)
	case t.Regex != nil:
		return t.Regex.match(in)
	}
	return nil, errors.New("the task is unknown")
}
