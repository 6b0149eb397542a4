package executor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/bash"
	"github.com/actiond/actiond/executor/internal/keeper"
)

// defaultMaxSessions bounds the shells of a sandbox; each costs a process, about 4 MiB
// and eight descriptors.
const defaultMaxSessions = 512

// maxStarts bounds the starts at a time, each of which takes a thread as file work
// does.
const maxStarts = 4

// defaultSession is the name of the session of actions that name none.
const defaultSession = "default"

// sessions are the shells of a sandbox by name.
type sessions struct {
	shells   *keeper.Keeper[*bash.Session]
	config   bash.Config // without an environment, which shells has
	starting *semaphore.Weighted
	singles  *keeper.Keeper[*bash.Session] // for one command each
	count    atomic.Int64                  // of singles
}

func newSessions(config bash.Config, most int) *sessions {
	s := &sessions{config: config, starting: semaphore.NewWeighted(maxStarts)}
	kept := keeper.Config[*bash.Session]{
		Start: func(ctx context.Context, _ string, env []string) (*bash.Session, error) {
			return s.launch(ctx, config.Dir, env)
		},
		Stop: func(shell *bash.Session, _ bool) { shell.Close() },
		Env:  config.Env, Max: most,
	}
	s.shells = keeper.New(kept)
	kept.Start = func(ctx context.Context, name string, _ []string) (*bash.Session, error) {
		_, dir, _ := strings.Cut(name, " ")
		return s.launch(ctx, dir, s.shells.Env())
	}
	kept.Max = 0
	s.singles = keeper.New(kept)
	return s
}

func sessionName(name string) string {
	if name == "" {
		return defaultSession
	}
	return name
}

// get returns the shell of a session, starting it if need be. ctx bounds the wait,
// and the start goes on without its caller. The error is an *api.Error where there
// are too many sessions.
func (s *sessions) get(ctx context.Context, name string) (*bash.Session, error) {
	shell, err := s.shells.Get(ctx, sessionName(name))
	if errors.Is(err, keeper.ErrMany) {
		return nil, api.TooMany("too many sessions: close one first (DELETE /v1/sessions/NAME)")
	}
	return shell, err
}

// launch starts a shell when fewer than maxStarts are being started.
func (s *sessions) launch(ctx context.Context, dir string, env []string) (*bash.Session, error) {
	if err := s.starting.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	defer s.starting.Release(1)
	config := s.config
	config.Dir, config.Env = dir, env
	return bash.Start(ctx, config)
}

// single starts a shell for one command, which release ends. ctx bounds the wait.
func (s *sessions) single(ctx context.Context, dir string) (shell *bash.Session, release func(), err error) {
	name := fmt.Sprint(s.count.Add(1), " ", dir)
	if shell, err = s.singles.Get(ctx, name); err != nil {
		go s.singles.CloseSession(name) // it may take a moment to end a start
		return nil, nil, err
	}
	return shell, func() { s.singles.CloseSession(name) }, nil
}

// existing returns the shell of that session, nil where it was not started.
func (s *sessions) existing(name string) *bash.Session {
	shell, _ := s.shells.Lookup(sessionName(name))
	return shell
}

func (s *sessions) close(name string) bool { return s.shells.CloseSession(sessionName(name)) }

func (s *sessions) closeAll() {
	s.shells.Close()
	s.singles.Close()
}

// list lists the shells in no order.
func (s *sessions) list() []api.Session {
	list := []api.Session{}
	for _, kept := range s.shells.List() {
		if !kept.Live {
			continue
		}
		info := kept.Value.Info()
		state := "idle"
		if info.Busy {
			state = "busy"
		}
		list = append(list, api.Session{
			Name: kept.Name, State: state, WorkingDir: info.Dir, PID: info.PID, Shell: info.Program,
			Started: info.Started, Commands: info.Commands, OutputBytes: info.Bytes,
		})
	}
	return list
}

// program is the shell that the default session runs.
func (s *sessions) program() string {
	if shell := s.existing(""); shell != nil {
		return shell.Info().Program
	}
	return s.config.Program
}
