package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/actiond/actiond/api/client"
)

const (
	// readyLimit is how long a server may take to start on a loaded machine.
	readyLimit = 30 * time.Second
	// readyPause is how long to wait before asking a starting server again:
	// there is nobody to wake us up when it binds its socket.
	readyPause = 10 * time.Millisecond
	// stopLimit is how long a server may take to end, which it promises to do
	// within 5 seconds; then it is killed.
	stopLimit = 8 * time.Second
	// deathLimit is how long a broken connection may be ahead of the news that
	// the server ended.
	deathLimit = time.Second
)

// localServer is a server process of our own, with a key and a socket that
// nobody else has. It owns two goroutines, which end with the process.
type localServer struct {
	program string
	dir     string // holds key, socket and temporary files, deleted by stop
	client  *client.Client
	log     tail
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the process is gone
	err     error         // how it ended, to be read after that
}

// startServer starts the program on a socket of its own and returns when it
// answers. ctx bounds the wait only; the caller must call stop.
func startServer(ctx context.Context, program, workingDir string) (*localServer, error) {
	dir, err := privateDir()
	if err != nil {
		return nil, err
	}
	s := &localServer{program: program, dir: dir, ended: make(chan struct{})}
	if err := s.start(ctx, workingDir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.waitReady(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

// longestSocket leaves room for the zero byte: a socket's path has 108 bytes on
// Linux and 104 elsewhere.
const longestSocket = 103

const socketName = "socket"

// privateDir makes a directory that only we can enter, with a path that is
// short enough for a socket.
func privateDir() (string, error) {
	dir, err := os.MkdirTemp("", "runtimectl-")
	if err == nil && len(filepath.Join(dir, socketName)) > longestSocket {
		if err := os.Remove(dir); err != nil {
			return "", err
		}
		dir, err = os.MkdirTemp("/tmp", "runtimectl-")
	}
	if err != nil {
		return "", fmt.Errorf("making a directory for the server's socket: %w", err)
	}
	return dir, nil
}

func (s *localServer) start(ctx context.Context, workingDir string) (err error) {
	key, keyFile := rand.Text(), filepath.Join(s.dir, "key")
	if err := os.WriteFile(keyFile, []byte(key), 0o600); err != nil {
		return fmt.Errorf("writing the server's key: %w", err)
	}
	temp := filepath.Join(s.dir, "tmp")
	if err := os.Mkdir(temp, 0o700); err != nil {
		return fmt.Errorf("making a directory for the server's temporary files: %w", err)
	}
	socket := filepath.Join(s.dir, socketName)
	if s.client, err = client.New(client.Config{BaseURL: "unix://" + socket, Key: key}); err != nil {
		return err
	}
	// Not ctx: the server ends when stop says so, after the last call to it.
	serverCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	cmd := exec.CommandContext(serverCtx, s.program,
		"--addr", "unix:"+socket, "--working-dir", workingDir, "--session-key-file", keyFile, "--soft-timeout", "10s")
	// What the server and its commands leave behind when they are killed is ours.
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	// A group of its own: a Ctrl-C on the terminal is for us, who then end it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopLimit
	if err := cmd.Start(); err != nil {
		cancel()
		return fmt.Errorf("starting the server: %w", err)
	}
	go func() {
		s.err = cmd.Wait()
		close(s.ended)
	}()
	return nil
}

// waitReady returns when the server answers, or why it does not.
func (s *localServer) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("it is not after %v", readyLimit))
	defer cancel()
	lastErr := errors.New("it was not asked")
	pause := time.NewTicker(readyPause)
	defer pause.Stop()
	for {
		err := ready(ctx, s.client)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // otherwise it says no more than that
			lastErr = err
		}
		select {
		case <-s.ended:
			return s.died()
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s to be ready: %w (%w)%s", s.program, context.Cause(ctx), lastErr, s.log.quote())
		case <-pause.C:
		}
	}
}

// died says how the process ended, and its last words.
func (s *localServer) died() error {
	how := "exit status 0"
	if s.err != nil {
		how = s.err.Error()
	}
	return fmt.Errorf("the server %s ended by itself (%s)%s", s.program, how, s.log.quote())
}

// explain adds to the error of a call that the server is gone, where it is.
func (s *localServer) explain(err error) error {
	timer := time.NewTimer(deathLimit)
	defer timer.Stop()
	select {
	case <-s.ended:
		return errors.Join(err, s.died())
	case <-timer.C:
		return err
	}
}

// stop ends the server and what it runs, and deletes its directory.
func (s *localServer) stop() error {
	s.client.Close()
	s.cancel()
	<-s.ended
	return os.RemoveAll(s.dir)
}

// ready returns nil when a server answers actions. Other servers of the
// protocol have /alive only.
func ready(ctx context.Context, c *client.Client) error {
	err := c.Ready(ctx)
	if status, ok := errors.AsType[*client.StatusError](err); ok && status.Status == http.StatusNotFound {
		return c.Alive(ctx)
	}
	return err
}

// tail keeps the last lines that are written to it. It may be used
// concurrently.
type tail struct {
	mu   sync.Mutex
	data []byte
}

const (
	tailBytes = 8 << 10
	tailLines = 10
)

// Write keeps the end of p.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, p...)
	if extra := len(t.data) - tailBytes; extra > 0 {
		t.data = append(t.data[:0], t.data[extra:]...)
	}
	return len(p), nil
}

// quote returns the last lines for the end of an error.
func (t *tail) quote() string {
	t.mu.Lock()
	text := string(bytes.TrimSpace(t.data))
	t.mu.Unlock()
	if text == "" {
		return "; it said nothing"
	}
	lines := strings.Split(text, "\n")
	var b strings.Builder
	b.WriteString("; its last words:")
	for _, line := range lines[max(0, len(lines)-tailLines):] {
		b.WriteString("\n  " + clean(strings.TrimSuffix(line, "\r")))
	}
	return b.String()
}
