package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

// stage is where the demo is played.
type stage struct {
	client  *client.Client
	session string // "" for the default one
	dir     string // in the sandbox, absolute and fresh
	about   string // a sentence
	again   string // shell commands that reach such a server
	// explain says more about a call that did not reach the server.
	explain func(error) error
	// strike takes down what was set up.
	strike func(context.Context) error
}

// keyVariable holds the key of a server that runs already.
const keyVariable = "SESSION_API_KEY"

// exampleCall ends a curl command line; the key comes first.
const exampleCall = ` -H 'Content-Type: application/json' \
    -d '{"action":{"action":"run","args":{"command":"uname -a"}}}'`

// setUp finds or starts a server and makes a fresh directory.
func (p *program) setUp(ctx context.Context, opts demoOptions) (*stage, error) {
	switch {
	case opts.url != "":
		return p.setUpRemote(ctx, opts)
	case p.place.local:
		return p.setUpLocal(ctx, opts)
	}
	st, why, err := p.setUpContainer(ctx, opts)
	if st != nil || err != nil {
		return st, err
	}
	_, _ = fmt.Fprintf(p.stderr, "note: playing on this machine, in no container: %s\n", why)
	return p.setUpLocal(ctx, opts)
}

// setUpLocal starts a server of our own.
func (p *program) setUpLocal(ctx context.Context, opts demoOptions) (*stage, error) {
	program, err := findServer(p.place.server)
	if err != nil {
		return nil, err
	}
	dir, err := freshDir()
	if err != nil {
		return nil, err
	}
	server, err := startServer(ctx, program, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &stage{
		client: server.client, dir: dir, explain: server.explain,
		about: fmt.Sprintf("Playing against %s, started for this on %s.", program, dir),
		again: "SESSION_API_KEY=secret " + word(nearby(program)) + " &\n" +
			"curl -s http://127.0.0.1:8000/execute_action -H 'X-Session-API-Key: secret'" + exampleCall,
		strike: func(context.Context) error {
			err := server.stop()
			if opts.keep {
				p.noteKept(dir)
				return err
			}
			return errors.Join(err, os.RemoveAll(dir))
		},
	}, nil
}

func (p *program) noteKept(dir string) { _, _ = fmt.Fprintf(p.stderr, "note: %s is kept\n", dir) }

// freshDir makes a directory, and returns the path that pwd prints there.
func freshDir() (string, error) {
	dir, err := os.MkdirTemp("", "runtimectl-demo-")
	if err != nil {
		return "", fmt.Errorf("making a directory for the demo: %w", err)
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return resolved, nil
}

// findServer returns the server program: the given one, or the one beside this
// program.
func findServer(given string) (string, error) {
	if given != "" {
		program, err := filepath.Abs(given)
		if err != nil {
			return "", fmt.Errorf("finding the server: %w", err)
		}
		return program, checkProgram(program, "--server wants a program")
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding the server beside this program: %w", err)
	}
	if self, err = filepath.EvalSymlinks(self); err != nil {
		return "", fmt.Errorf("finding the server beside this program: %w", err)
	}
	program := filepath.Join(filepath.Dir(self), "server")
	return program, checkProgram(program, "build both programs with 'make build', or use --server or --url")
}

func checkProgram(program, advice string) error {
	info, err := os.Stat(program)
	if err == nil && (info.IsDir() || info.Mode()&0o111 == 0) {
		err = &fs.PathError{Op: "run", Path: program, Err: fs.ErrPermission}
	}
	if err != nil {
		return fmt.Errorf("there is no server to start: %w; %s", err, advice)
	}
	return nil
}

// nearby is a path as a person would type it.
func nearby(program string) string {
	here, err := os.Getwd()
	if err != nil {
		return program
	}
	rel, err := filepath.Rel(here, program)
	if err != nil || !filepath.IsLocal(rel) {
		return program
	}
	if !strings.Contains(rel, "/") {
		return "./" + rel
	}
	return rel
}

// freshRemote makes a directory in a sandbox, and stays in it for its pwd.
const freshRemote = `cd "$(mktemp -d "${TMPDIR:-/tmp}/runtimectl-demo-XXXXXX")" && pwd -P`

// freshName is what such a directory is called: nothing else is ever removed.
var freshName = regexp.MustCompile(`^runtimectl-demo-[A-Za-z0-9]+$`)

// setUpRemote makes a directory in the sandbox of a running server. The shell
// has the directory's name, so that it disturbs nobody else's.
func (p *program) setUpRemote(ctx context.Context, opts demoOptions) (*stage, error) {
	c, err := client.New(client.Config{BaseURL: opts.url, Key: p.getenv(keyVariable)})
	if err != nil {
		return nil, &usageError{"runtimectl demo", fmt.Errorf("--url: %w", err)}
	}
	asIs := func(err error) error { return err }
	play := player{client: c, explain: asIs}
	if err := ready(ctx, c); err != nil {
		return nil, fmt.Errorf("there is no server ready at %s: %w", opts.url, err)
	}
	dir, err := play.freshDir(ctx)
	if err != nil {
		return nil, err
	}
	play.session = path.Base(dir)
	return &stage{
		client: c, session: play.session, dir: dir, explain: asIs,
		about: fmt.Sprintf("Playing against %s, in its directory %s.", opts.url, dir),
		again: "curl -s " + curlAddress(opts.url) + ` -H "X-Session-API-Key: $` + keyVariable + `"` + exampleCall,
		strike: func(ctx context.Context) error {
			defer c.Close()
			return p.strikeRemote(ctx, &play, dir, opts.keep)
		},
	}, nil
}

// freshDir makes a directory in the sandbox.
func (p *player) freshDir(ctx context.Context) (string, error) {
	o, err := p.do(ctx, api.RunAction{Command: freshRemote, IsStatic: true}, 0)
	if err != nil {
		if final := p.final(ctx, err); final != nil {
			err = final
		}
		return "", fmt.Errorf("making a directory in the sandbox: %w", err)
	}
	dir := content(o)
	if !path.IsAbs(dir) || strings.Contains(dir, "\n") || !freshName.MatchString(path.Base(dir)) {
		return "", fmt.Errorf("making a directory in the sandbox: the answer is %q", excerpt(dir))
	}
	return dir, nil
}

// strikeRemote closes the session, with what still runs in it, and removes the
// directory.
func (p *program) strikeRemote(ctx context.Context, play *player, dir string, keep bool) error {
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	var failures []error
	err := play.client.CloseSession(ctx, play.session)
	if status, ok := errors.AsType[*client.StatusError](err); err != nil && (!ok || status.Status != http.StatusNotFound) {
		failures = append(failures, fmt.Errorf("closing the session %s: %w", play.session, err))
	}
	if keep {
		p.noteKept(dir + ", in the sandbox,")
		return errors.Join(failures...)
	}
	o, err := play.do(ctx, api.RunAction{Command: "rm -rf -- " + quote(dir), IsStatic: true}, 0)
	if err == nil {
		err = want{exactly: new("")}.check("run", o)
	}
	if err != nil {
		failures = append(failures, fmt.Errorf("removing %s in the sandbox: %w", dir, err))
	}
	return errors.Join(failures...)
}

// curlAddress is where curl sends an action to a URL of ours.
func curlAddress(url string) string {
	if socket, ok := strings.CutPrefix(url, "unix://"); ok {
		return "--unix-socket " + word(socket) + " http://sandbox/execute_action"
	}
	return word(strings.TrimRight(url, "/") + "/execute_action")
}

// quote makes one word of s for a shell.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// harmless is what needs no quotes.
var harmless = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// word is quote for a person's eyes: without quotes where none are needed.
func word(s string) string {
	if harmless.MatchString(s) {
		return s
	}
	return quote(s)
}
