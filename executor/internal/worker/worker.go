// Package worker runs work in a child process that must not run in the server: readers
// of documents and regular expressions of the agent, which may take all the memory or
// time there is and cannot be interrupted.
//
// The child is a copy of this program with the rights of the sandbox's user. It gets its
// input as one open descriptor, reads no other file and writes none. Its memory, its time
// and its answer are bounded, and the kernel ends it before the server when memory runs
// out (docs/decisions/032-readers.md).
package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/document"
	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/identity"
)

const (
	// DefaultTime bounds a child.
	DefaultTime = 20 * time.Second
	// DefaultMemory bounds the address space that a child may add after its start, in
	// bytes.
	DefaultMemory = 512 << 20
	// maxPage and maxMatches bound the answers about documents and expressions, in bytes of JSON. The server holds an
	// answer several times while it decodes it, and an agent may trace the child and write the answer itself.
	maxPage, maxMatches = 1 << 20, 32 << 20
	// maxFailure bounds the reason of an Error, in bytes.
	maxFailure = 1000
	// concurrent is how many children run at a time.
	concurrent = 2
)

// Errors of a child that reached a limit.
var (
	ErrTime   = errors.New("it took too long")
	ErrMemory = errors.New("it needed too much memory")
	ErrAnswer = errors.New("its result is too large")
	// ErrKilled is the error of a child that was killed. Its cause is not known: the kernel kills it where memory runs
	// out, and other processes of the user may.
	ErrKilled = errors.New("its process was killed, by another process or because memory ran out")
	// ErrBusy is the error of a task whose turn did not come.
	ErrBusy = errors.New("all workers are busy with other documents and expressions, so try again later")
)

// Error is an error that the work itself met, such as a damaged document or a pattern
// that is not valid.
type Error struct{ Reason string }

func (e *Error) Error() string { return e.Reason }

// Pool starts children. Its methods may be called concurrently; a few children run at a
// time, and the others wait, for as long as a child may take.
type Pool struct {
	user   *identity.User
	time   time.Duration
	wait   time.Duration // for a turn
	memory uint64
	turns  chan struct{} // a semaphore
}

// New returns a pool whose children run as user, for at most limit, with memory bytes each.
func New(user *identity.User, limit time.Duration, memory uint64) *Pool {
	return &Pool{user: user, time: limit, wait: limit, memory: memory, turns: make(chan struct{}, concurrent)}
}

// task is the input of a child on its standard input, as JSON.
type task struct {
	Memory   uint64        // bytes of address space
	Time     int           // seconds of processor time
	Document *documentTask `json:",omitempty"`
	Regex    *regexTask    `json:",omitempty"`
}

// answer is the output of a child on its standard output, as JSON.
type answer struct {
	Failure string `json:",omitempty"`
	Result  json.RawMessage
}

// run does a task in a child, whose input is the file, and decodes its result, from an answer of at most
// most bytes. The error is a *Error, one of the errors of limits, or that of starting the child.
func (p *Pool) run(t task, input *os.File, most int, result any) error {
	select {
	case p.turns <- struct{}{}:
	case <-time.After(p.wait): // a child that hangs in a file system may outlive its time
		return ErrBusy
	}
	defer func() { <-p.turns }()
	t.Memory, t.Time = p.memory, int(p.time/time.Second)+1
	request, err := json.Marshal(t)
	if err != nil {
		return err
	}
	out, err := p.start(request, input, most)
	if err != nil {
		return err
	}
	var a answer
	if err := json.Unmarshal(out, &a); err != nil {
		return fmt.Errorf("reading the answer of a worker: %w", err)
	}
	if a.Failure != "" {
		return &Error{strings.ToValidUTF8(a.Failure[:min(len(a.Failure), maxFailure)], "")}
	}
	return json.Unmarshal(a.Result, result)
}

// documentTask turns a document of Size bytes into Markdown.
type documentTask struct {
	Size    int64
	Request document.Request
}

// Convert turns an open document of size bytes into Markdown. The error is a *Error where the document cannot be read.
func (p *Pool) Convert(in *os.File, size int64, r document.Request) (page document.Page, err error) {
	if err = p.run(task{Document: &documentTask{size, r}}, in, maxPage, &page); err != nil {
		return document.Page{}, err
	}
	if utf8.RuneCountInString(page.Text) > r.Most || page.Next < 0 || page.Lines < 0 { // the child is the user's and may say anything
		return document.Page{}, errors.New("a worker returned a page that was not asked for")
	}
	return page, nil
}

// start runs a child to its end and returns its output, at most most bytes.
func (p *Pool) start(request []byte, input *os.File, most int) ([]byte, error) {
	question, err := memfile(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = question.Close() }()
	complaint, err := memfile(nil) // which needs no goroutine that reads it
	if err != nil {
		return nil, err
	}
	defer func() { _ = complaint.Close() }()
	ours, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ours.Close() }()
	cmd := proc.Copy(name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = question, theirs, complaint, []*os.File{input}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: p.user.Credential()}
	err = proc.Start(cmd)
	_ = theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("starting a worker: %w", err)
	}
	_ = ours.SetReadDeadline(time.Now().Add(p.time)) // a pipe has them
	out, err := io.ReadAll(io.LimitReader(ours, int64(most)+1))
	if err == nil && len(out) > most {
		err = ErrAnswer
	}
	if err != nil {
		_ = cmd.Process.Kill()
	}
	waited := cmd.Wait() // its output is at its end, or it is killed
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, ErrTime
	case err != nil:
		return nil, err
	case waited != nil:
		return nil, p.ended(cmd.ProcessState, complaint)
	}
	return out, nil
}

// ended returns the reason why a child ended without an answer.
func (p *Pool) ended(state *os.ProcessState, complaint *os.File) error {
	text := make([]byte, 4096)
	n, _ := complaint.ReadAt(text, 0)
	text = text[:n]
	switch {
	case state.UserTime()+state.SystemTime() >= p.time:
		return ErrTime
	case bytes.Contains(text, []byte("stack exceeds")):
		return &Error{"it is nested too deeply"}
	case signalled(state, syscall.SIGKILL, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT):
		return ErrKilled
	case state.ExitCode() != exitFailed:
		// Its runtime ended it, which does so in several ways without memory for an object or a thread. Other errors of the
		// work are panics, which it answers with.
		return ErrMemory
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	return fmt.Errorf("a worker ended with %v: %q", state, first)
}

// signalled reports whether one of the signals ended a process.
func signalled(state *os.ProcessState, signals ...syscall.Signal) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && slices.Contains(signals, status.Signal())
}

// memfile returns a file without a name that holds data.
func memfile(data []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	_, err = f.Write(data)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
