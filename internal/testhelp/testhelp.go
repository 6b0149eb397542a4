// Package testhelp has helpers for the tests of several packages.
package testhelp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// OpenMain is a TestMain that lets other users read the files of tests, whatever umask the
// caller has.
func OpenMain(m *testing.M) {
	syscall.Umask(0o022)
	m.Run()
}

// eventually is how long a condition may take on an overloaded machine.
const eventually = 3 * time.Minute

// Eventually waits until cond returns true. It asks after pauses of 1 to 20 ms and, after three minutes, once
// more; if that is false too it ends the test, and names the condition by format and args. Like
// [testing.TB.Fatalf] it must be called from the goroutine of the test.
func Eventually(tb testing.TB, cond func() bool, format string, args ...any) {
	tb.Helper()
	start := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		late := time.Since(start) > eventually
		if cond() {
			return
		}
		if late {
			tb.Fatalf("not within %v: %s", eventually, fmt.Sprintf(format, args...))
		}
		<-time.After(pause)
	}
}

// Buffer is a [bytes.Buffer] that several goroutines may use: a log that a test reads while others write.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String returns all that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Tree lists the files below a directory: "name mode content", links with their
// targets.
func Tree(tb testing.TB, dir string) []string {
	tb.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, file)
		line := rel + " " + info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			data, err := os.ReadFile(file) //nolint:gosec // a directory of the test
			if err != nil {
				return err
			}
			line += " " + string(data)
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(file)
			if err != nil {
				return err
			}
			line = rel + " -> " + to
		}
		all = append(all, line)
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	return all
}

// Echo sends the bytes of each connection of l back to it, until l is closed.
func Echo(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() { // ends with the connection
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}()
	}
}

// Listen listens on a free TCP port of this machine until the end of the test.
func Listen(tb testing.TB) net.Listener {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

// Dial connects to an address until the end of the test.
func Dial(tb testing.TB, network, address string) net.Conn {
	tb.Helper()
	conn, err := new(net.Dialer).DialContext(tb.Context(), network, address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Exchange sends text over an echoing connection.
func Exchange(tb testing.TB, conn io.ReadWriter, text string) {
	tb.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		tb.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
		tb.Fatalf("got %q, %v, want %q", got, err, text)
	}
}

// Echoes reports whether a connection carries bytes to an echo and back; nil does not.
func Echoes(conn net.Conn) bool {
	if conn == nil {
		return false
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		return false
	}
	got := make([]byte, 5)
	_, err := io.ReadFull(conn, got)
	return err == nil && string(got) == "hello"
}

// Ended waits for the end of a connection, for a minute at most.
func Ended(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	n, err := conn.Read(make([]byte, 1))
	timeout, ok := errors.AsType[net.Error](err)
	return n == 0 && err != nil && !(ok && timeout.Timeout())
}

// WriteFile writes a file, and makes the directories above it that are missing.
func WriteFile[T string | []byte](tb testing.TB, file string, data T, mode fs.FileMode) {
	tb.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // for all users
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(data), mode); err != nil {
		tb.Fatal(err)
	}
}

// ReadFile reads a file.
func ReadFile(tb testing.TB, file string) []byte {
	tb.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// WriteProgram writes a program that the test runs, for all users. A process that is started
// meanwhile would inherit the open file, and the kernel runs no file that is open for writing.
func WriteProgram(tb testing.TB, file, text string) {
	tb.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Chmod(file, 0o755); err != nil { //nolint:gosec // for all users
		tb.Fatal(err)
	}
}

// KillAfter ends the process whose number a file holds at the end of the test: it left
// the sandbox's process tree.
func KillAfter(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
}

// PublicDir is a temporary directory that every user may use, without links in its path.
func PublicDir(tb testing.TB) string {
	tb.Helper()
	dir, err := filepath.EvalSymlinks(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o777); err != nil { //nolint:gosec // for all users
			tb.Fatal(err)
		}
	}
	return dir
}
