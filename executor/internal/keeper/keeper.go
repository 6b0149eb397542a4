// Package keeper keeps one value for each session name: a shell, a notebook kernel,
// a browser. A value is started on first use, checked before each later one,
// replaced when it has ended, and stopped after a time without use.
//
// A start goes on without the caller whose time is over: the next caller finds it
// done, or gets the error.
package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// Errors of the methods, beside those of Start and of the caller's context.
var (
	// ErrClosed says that the session was closed.
	ErrClosed = errors.New("the session was closed")
	// ErrBusy says that another use of the session took all of the limit.
	ErrBusy = errors.New("the session is in use")
	// ErrStarting says that the start took all of the limit, and goes on.
	ErrStarting = errors.New("the start goes on")
	// ErrMany says that there are Max values.
	ErrMany = errors.New("too many sessions")
)

// Config says how values are kept. Start and Stop are required.
type Config[T any] struct {
	// Start starts the value of a session with an environment. ctx ends when the session is closed;
	// Start then returns soon. It bounds its own time.
	Start func(ctx context.Context, name string, env []string) (T, error)
	// Check is called before each use. It says how a value ended that can no longer be
	// used, and returns "" if it can; nil means that every value can. It bounds its own
	// time.
	Check func(value T) (lost string)
	// Ended reports whether a value has ended, without waiting; nil means that none
	// has.
	Ended func(value T) bool
	// Stop ends a value and returns when it is gone; graceful gives it time
	// to end by itself first. It may be called for a value that has ended, and several
	// times at once.
	Stop func(value T, graceful bool)
	// Env is the first environment.
	Env []string
	// Max bounds the values; 0 means no bound. MaxNames bounds the sessions that are
	// remembered, some of them for the end of their value alone; 0 means Max.
	Max, MaxNames int
	// IdleTime is how long a value may be unused after a Use; 0 means forever.
	IdleTime time.Duration
	// IdleText says how a value ended that was stopped after IdleTime.
	IdleText string
}

// Keeper keeps values by session names. Its methods may be called concurrently. It
// owns a goroutine for each start and for each use, and a timer for each value that
// is idle; Close ends all of them.
type Keeper[T any] struct {
	cfg     Config[T]
	running sync.WaitGroup // users of sessions

	mu       sync.Mutex
	env      []string
	sessions map[string]*session[T]
	closed   bool
}

type session[T any] struct {
	name   string
	turn   chan struct{} // holds a token while the turn is free
	closed chan struct{}

	// mu of the Keeper guards these.
	users int // calls, starts and idle timers that fired
	busy  bool
	since time.Time // it is busy, or is not
	value T
	live  bool // there is a value, though it may have ended
	lost  string
	start *start[T] // in progress, or failed without a caller to tell
	idle  *time.Timer
	uses  int
}

// start checks the value of a session, and starts another where it cannot be used.
type start[T any] struct {
	done    chan struct{} // closed once the fields below hold
	value   T
	err     error
	waiting int // guarded by mu of the Keeper
}

func (p *start[T]) runs() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Turn is one use of a value. No other use of the session runs meanwhile.
type Turn[T any] struct {
	Value T
	// Lost says how the value of the uses before ended, if this is another value.
	Lost string

	ended bool
	how   string
}

// End says that the value ended during this use, and how. The next use gets a new
// value, and is told only where the caller of this one has gone.
func (t *Turn[T]) End(how string) { t.ended, t.how = true, how }

// New returns a keeper without values.
func New[T any](cfg Config[T]) *Keeper[T] {
	if cfg.Ended == nil {
		cfg.Ended = func(T) bool { return false }
	}
	if cfg.MaxNames == 0 {
		cfg.MaxNames = cfg.Max
	}
	return &Keeper[T]{cfg: cfg, env: cfg.Env, sessions: map[string]*session[T]{}}
}

// SetEnv sets the environment of the values that are started from now on.
func (k *Keeper[T]) SetEnv(env []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.env = env
}

// Env returns the environment that values are started with.
func (k *Keeper[T]) Env() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.env
}

// Use calls use with the value of a session when it is this caller's turn, starting
// a value if need be. limit bounds the wait for the turn and for the start, and
// nothing was done where the error is ErrBusy or ErrStarting; a negative limit is
// none. ctx bounds the wait too, and a use that has begun goes on without its
// caller. The error is that of Start or one of this package's where use was not
// called. A panic of use, which costs the value, or of Start or Check is one of Use.
func (k *Keeper[T]) Use(ctx context.Context, name string, limit time.Duration, use func(*Turn[T])) error {
	s, err := k.enter(name)
	if err != nil {
		return err
	}
	var over <-chan time.Time
	if limit >= 0 {
		over = time.After(limit)
	}
	if err := k.awaitTurn(ctx, s, over); err != nil {
		k.leave(s)
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := k.take(ctx, s, over, use)
		s.turn <- struct{}{}
		k.leave(s)
		done <- err
	}()
	select {
	case err := <-done:
		rethrow(err)
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// panicError is a panic on its way from a goroutine of the keeper to the caller.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("%v\n%s", p.value, p.stack) }

// guard does work and returns its panic as an error.
func guard(work func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	work()
	return nil
}

// rethrow panics where err is the error of a panic.
func rethrow(err error) {
	if p, ok := errors.AsType[*panicError](err); ok {
		panic(p)
	}
}

// enter finds or makes a session, and counts a user in.
func (k *Keeper[T]) enter(name string) (*session[T], error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, ErrClosed
	}
	s := k.sessions[name]
	if (s == nil || !k.counts(s)) && k.cfg.Max > 0 && k.count() >= k.cfg.Max {
		return nil, ErrMany
	}
	if s == nil {
		k.forgetSome()
		s = newSession[T](name)
		k.sessions[name] = s
	}
	k.use(s)
	return s, nil
}

func newSession[T any](name string) *session[T] {
	s := &session[T]{name: name, turn: make(chan struct{}, 1), closed: make(chan struct{})}
	s.turn <- struct{}{}
	return s
}

// use counts a user in. The caller holds mu.
func (k *Keeper[T]) use(s *session[T]) {
	s.users++
	k.running.Add(1)
}

func (k *Keeper[T]) leave(s *session[T]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.countOut(s)
	k.running.Done()
}

// countOut counts a user out. A session of which there is nothing left to say is
// forgotten. The caller holds mu.
func (k *Keeper[T]) countOut(s *session[T]) {
	s.users--
	if s.users == 0 && !s.live && s.lost == "" && s.start == nil && k.sessions[s.name] == s {
		delete(k.sessions, s.name)
	}
}

// counts reports whether a session has a value, or may start one.
func (k *Keeper[T]) counts(s *session[T]) bool {
	return s.users > 0 || s.live && !k.cfg.Ended(s.value)
}

func (k *Keeper[T]) count() (count int) {
	for _, s := range k.sessions {
		if k.counts(s) {
			count++
		}
	}
	return count
}

// forgetSome forgets sessions whose values have ended, where there are too many.
func (k *Keeper[T]) forgetSome() {
	for name, s := range k.sessions {
		if k.cfg.MaxNames == 0 || len(k.sessions) < k.cfg.MaxNames {
			return
		}
		if !k.counts(s) {
			delete(k.sessions, name)
			k.running.Go(func() { k.end(s) })
		}
	}
}

func (k *Keeper[T]) awaitTurn(ctx context.Context, s *session[T], over <-chan time.Time) error {
	select {
	case <-s.turn:
		return nil
	default:
	}
	select {
	case <-s.turn:
		return nil
	case <-over:
		return ErrBusy
	case <-s.closed:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take uses the value of a session, with the turn.
func (k *Keeper[T]) take(ctx context.Context, s *session[T], over <-chan time.Time, use func(*Turn[T])) error {
	k.mark(s, true)
	defer k.mark(s, false)
	value, err := k.awaitValue(ctx.Done(), s, over)
	if ctx.Err() != nil {
		if err == nil {
			k.mu.Lock()
			k.awaitIdle(s)
			k.mu.Unlock()
		}
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	t := &Turn[T]{Value: value}
	k.mu.Lock()
	t.Lost, s.lost = s.lost, ""
	k.mu.Unlock()
	if err = guard(func() { use(t) }); err != nil {
		t.End("was stopped after an internal error")
	}
	if t.ended {
		k.cfg.Stop(value, false)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if t.ended {
		s.live = false
	} else {
		k.awaitIdle(s)
	}
	if err != nil || ctx.Err() != nil { // the next caller gets the error
		s.lost = cmp.Or(t.how, t.Lost)
	}
	return err
}

func (k *Keeper[T]) mark(s *session[T], busy bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	s.busy, s.since = busy, time.Now()
}

// awaitValue returns a value that can be used. done, if it is not nil, and over
// bound the wait; the start goes on.
func (k *Keeper[T]) awaitValue(done <-chan struct{}, s *session[T], over <-chan time.Time) (value T, err error) {
	k.mu.Lock()
	if s.idle != nil {
		s.idle.Stop()
	}
	if s.start == nil && s.live && k.cfg.Check == nil {
		defer k.mu.Unlock()
		return s.value, nil
	}
	if s.start == nil {
		s.start = &start[T]{done: make(chan struct{})}
		k.use(s)
		go k.prepare(s, s.start)
	}
	p := s.start
	p.waiting++
	k.mu.Unlock()
	select {
	case <-p.done:
	case <-over:
		err = ErrStarting
	case <-s.closed:
		err = ErrClosed
	case <-done:
		err = ErrStarting
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	p.waiting--
	select {
	case <-p.done:
		if s.start == p { // it failed without a caller to tell
			s.start = nil
		}
		return p.value, p.err
	default:
		return value, err
	}
}

// prepare makes sure that a session has a value that can be used.
func (k *Keeper[T]) prepare(s *session[T], p *start[T]) {
	defer k.running.Done()
	ctx, cancel := context.WithCancelCause(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-s.closed:
			cancel(ErrClosed)
		case <-ctx.Done():
		}
	})
	defer watching.Wait()
	defer cancel(nil)
	var value T
	var err error
	if panicked := guard(func() { value, err = k.living(ctx, s) }); panicked != nil {
		err = panicked
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && p.waiting == 0 {
		k.awaitIdle(s)
	}
	if err == nil || p.waiting > 0 {
		s.start = nil
	}
	p.value, p.err = value, err
	k.countOut(s)
	close(p.done)
}

// living returns the value of a session, or a new one where that cannot be used.
func (k *Keeper[T]) living(ctx context.Context, s *session[T]) (value T, err error) {
	k.mu.Lock()
	value, live, env := s.value, s.live, k.env
	k.mu.Unlock()
	if live {
		lost := ""
		if k.cfg.Check != nil {
			lost = k.cfg.Check(value)
		}
		if lost == "" {
			return value, nil
		}
		k.cfg.Stop(value, false)
		k.mu.Lock()
		s.live, s.lost = false, cmp.Or(s.lost, lost)
		k.mu.Unlock()
	}
	if value, err = k.cfg.Start(ctx, s.name, env); err != nil {
		return value, err
	}
	k.mu.Lock()
	select {
	case <-s.closed: // before there was a value to stop
		err = ErrClosed
	default:
		s.value, s.live = value, true
	}
	k.mu.Unlock()
	if err != nil {
		k.cfg.Stop(value, false)
	}
	return value, err
}

// awaitIdle has the value stopped after IdleTime without use. The caller holds mu.
func (k *Keeper[T]) awaitIdle(s *session[T]) {
	if k.cfg.IdleTime == 0 {
		return
	}
	if s.idle != nil {
		s.idle.Stop()
	}
	s.uses++
	uses := s.uses
	s.idle = time.AfterFunc(k.cfg.IdleTime, func() { k.stopIdle(s, uses) })
}

// stopIdle stops a value that was not used since the timer was set.
func (k *Keeper[T]) stopIdle(s *session[T], uses int) {
	k.mu.Lock()
	found := k.sessions[s.name] == s
	if found {
		k.use(s)
	}
	k.mu.Unlock()
	if !found {
		return
	}
	defer k.leave(s)
	select {
	case <-s.turn:
	case <-s.closed:
		return
	}
	k.mu.Lock()
	value, stop := s.value, s.uses == uses && s.live && s.start == nil && !k.cfg.Ended(s.value)
	k.mu.Unlock()
	if stop {
		k.cfg.Stop(value, true)
		k.mu.Lock()
		s.live, s.lost, s.since = false, k.cfg.IdleText, time.Now()
		k.mu.Unlock()
	}
	s.turn <- struct{}{}
}

// Get returns the value of a session, starting one if need be, without taking the
// turn: any number of callers may have it. ctx bounds the wait, and the start goes
// on without its caller. A panic of Start or Check is one of Get.
func (k *Keeper[T]) Get(ctx context.Context, name string) (value T, err error) {
	s, err := k.enter(name)
	if err != nil {
		return value, err
	}
	defer k.leave(s)
	return k.get(ctx, s)
}

func (k *Keeper[T]) get(ctx context.Context, s *session[T]) (value T, err error) {
	value, err = k.awaitValue(ctx.Done(), s, nil)
	rethrow(err)
	if errors.Is(err, ErrStarting) {
		return value, context.Cause(ctx)
	}
	return value, err
}

// Renew replaces the value of a session by a new one, while the old one ends. ctx
// bounds the wait for the start.
func (k *Keeper[T]) Renew(ctx context.Context, name string) error {
	s := newSession[T](name)
	k.mu.Lock()
	old, closed := k.sessions[name], k.closed
	if !closed {
		k.sessions[name] = s
		k.use(s)
	}
	k.mu.Unlock()
	if closed {
		return ErrClosed
	}
	defer k.leave(s)
	var ending sync.WaitGroup
	defer ending.Wait()
	if old != nil {
		ending.Go(func() { k.end(old) })
	}
	_, err := k.get(ctx, s)
	return err
}

// Info says how the value of a session is.
type Info[T any] struct {
	Name string
	// Busy says that a use runs, or waits for its start.
	Busy  bool
	Since time.Time // it is busy, or is not
	Value T
	Live  bool // there is a Value, though it may have ended
	// Lost is the end of the session before, if the next use will report it.
	Lost string
}

// List describes the sessions that have a value, or had one whose end the next use
// will be told of. It is in no order.
func (k *Keeper[T]) List() []Info[T] {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []Info[T]
	for name, s := range k.sessions {
		busy := s.busy || s.start.runs()
		if busy || s.live || s.lost != "" {
			list = append(list, Info[T]{name, busy, s.since, s.value, s.live, s.lost})
		}
	}
	return list
}

// Lookup returns the value of a session; false where it has none.
func (k *Keeper[T]) Lookup(name string) (value T, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.sessions[name]; s != nil && s.live {
		return s.value, true
	}
	return value, false
}

// CloseSession ends the value of a session; false where the session does not exist.
// Callers that wait for the value get ErrClosed. A use that runs sees its value end.
func (k *Keeper[T]) CloseSession(name string) bool {
	k.mu.Lock()
	s := k.sessions[name]
	delete(k.sessions, name)
	k.mu.Unlock()
	if s == nil {
		return false
	}
	k.end(s)
	return true
}

// Close ends all values and returns when nothing of them is left.
func (k *Keeper[T]) Close() {
	k.mu.Lock()
	k.closed = true
	sessions := k.sessions
	k.sessions = map[string]*session[T]{}
	for _, s := range sessions {
		k.running.Go(func() { k.end(s) })
	}
	k.mu.Unlock()
	k.running.Wait()
}

// end ends a session that is no longer in the map.
func (k *Keeper[T]) end(s *session[T]) {
	graceful := false
	select {
	case <-s.turn: // and keeps it
		graceful = true
	default:
	}
	k.mu.Lock()
	close(s.closed)
	value, live, starting := s.value, s.live, s.start
	if s.idle != nil {
		s.idle.Stop()
	}
	k.mu.Unlock()
	if live {
		k.cfg.Stop(value, graceful && !k.cfg.Ended(value))
	}
	if starting != nil {
		<-starting.done
	}
}
