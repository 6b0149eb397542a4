package executor

import (
	"context"
	"sync"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/bash"
)

// maxSessions bounds the shells of a sandbox; each costs a process, about 4 MiB
// and eight descriptors.
const maxSessions = 64

// maxStarts bounds the starts at a time, which take threads as file work does.
const maxStarts = 4

// defaultSession is the name of the session of actions that name none.
const defaultSession = "default"

// sessions are the shells of a sandbox by name. The zero value, with a config
// and places to start in, is ready.
type sessions struct {
	config   bash.Config
	starting places

	mu     sync.Mutex
	byName map[string]*session
	closed bool
}

// session is a shell that is there, or is being started.
type session struct {
	started chan struct{} // closed once the fields below hold
	shell   *bash.Session
	err     error
}

// get returns the session of that name, starting it if need be. ctx bounds the
// wait for somebody else's start; a start of one's own has its own bound.
func (s *sessions) get(ctx context.Context, name string) (*bash.Session, error) {
	if name == "" {
		name = defaultSession
	}
	entry, mine, err := s.claim(name)
	if err != nil {
		return nil, err
	}
	if !mine {
		select {
		case <-entry.started:
			return entry.shell, entry.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	s.start(ctx, name, entry)
	return entry.shell, entry.err
}

// start starts the shell of an entry. Others wait for it too: this caller's
// going away must not fail theirs.
func (s *sessions) start(ctx context.Context, name string, entry *session) {
	s.mu.Lock()
	config := s.config
	s.mu.Unlock()
	entry.shell, entry.err = s.launch(context.WithoutCancel(ctx), config)
	close(entry.started)
	if entry.err != nil {
		s.forget(name, entry)
	}
}

// launch starts a shell when it is its turn.
func (s *sessions) launch(ctx context.Context, config bash.Config) (*bash.Session, error) {
	s.starting <- struct{}{}
	defer func() { <-s.starting }()
	return bash.Start(ctx, config)
}

// setEnv sets the environment of the shells that are started from now on.
func (s *sessions) setEnv(env []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config.Env = env
}

// renew puts a new shell in the place of a session's, and starts it while the
// old one ends.
func (s *sessions) renew(ctx context.Context, name string) error {
	entry := &session{started: make(chan struct{})}
	s.mu.Lock()
	old, closed := s.byName[name], s.closed
	if !closed {
		s.byName[name] = entry
	}
	s.mu.Unlock()
	if closed {
		return bash.ErrClosed
	}
	var ending sync.WaitGroup
	defer ending.Wait()
	ending.Go(func() { old.end() })
	s.start(ctx, name, entry)
	return entry.err
}

// end closes the shell once it is started; a nil session has none.
func (s *session) end() {
	if s == nil {
		return
	}
	<-s.started
	if s.shell != nil {
		s.shell.Close()
	}
}

// claim finds the entry of that name or makes it; mine says that the caller
// has to start its shell.
func (s *sessions) claim(name string) (entry *session, mine bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, bash.ErrClosed
	}
	if entry, ok := s.byName[name]; ok {
		return entry, false, nil
	}
	if len(s.byName) >= maxSessions {
		return nil, false, api.TooMany("too many sessions: close one first (DELETE /v1/sessions/NAME)")
	}
	if s.byName == nil {
		s.byName = map[string]*session{}
	}
	entry = &session{started: make(chan struct{})}
	s.byName[name] = entry
	return entry, true, nil
}

// forget removes the entry, if it is still that name's.
func (s *sessions) forget(name string, entry *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byName[name] == entry {
		delete(s.byName, name)
	}
}

// existing returns the session of that name, nil where it was not started.
func (s *sessions) existing(name string) *bash.Session {
	if name == "" {
		name = defaultSession
	}
	s.mu.Lock()
	entry := s.byName[name]
	s.mu.Unlock()
	if entry == nil {
		return nil
	}
	select {
	case <-entry.started:
		return entry.shell
	default:
		return nil
	}
}

func (s *sessions) close(name string) bool {
	if name == "" {
		name = defaultSession
	}
	s.mu.Lock()
	entry := s.byName[name]
	delete(s.byName, name)
	s.mu.Unlock()
	if entry == nil {
		return false
	}
	entry.end()
	return true
}

func (s *sessions) closeAll() {
	s.mu.Lock()
	s.closed = true
	entries := s.byName
	s.byName = nil
	s.mu.Unlock()
	var all sync.WaitGroup
	for _, entry := range entries {
		all.Go(entry.end)
	}
	all.Wait()
}

// list lists the shells in no order.
func (s *sessions) list() []api.Session {
	s.mu.Lock()
	names := make([]string, 0, len(s.byName))
	for name := range s.byName {
		names = append(names, name)
	}
	s.mu.Unlock()
	list := []api.Session{}
	for _, name := range names {
		shell := s.existing(name)
		if shell == nil {
			continue
		}
		info := shell.Info()
		state := "idle"
		if info.Busy {
			state = "busy"
		}
		list = append(list, api.Session{
			Name: name, State: state, WorkingDir: info.Dir, PID: info.PID, Shell: info.Program,
			Started: info.Started, Commands: info.Commands, OutputBytes: info.Bytes,
		})
	}
	return list
}

// program is the shell that the default session runs.
func (s *sessions) program() string {
	if shell := s.existing(defaultSession); shell != nil {
		return shell.Info().Program
	}
	return s.config.Program
}
