package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/handover"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/server/files"
)

// Upgrader replaces this program by another one, in the same process. Its methods are
// called one at a time.
type Upgrader interface {
	// Receive reads a program and checks it, and returns its version. An *[handover.UnfitError] says
	// why it cannot be used. The caller must call Forget.
	Receive(ctx context.Context, r io.Reader) (version string, err error)
	// Forget drops the program that was received.
	Forget()
	// Running names the running work beside actions and requests, such as background jobs.
	Running() []string
	// End ends sessions, programs and the processes that they left running, and returns the names. Each session
	// begins anew with its next action.
	End(ctx context.Context) (ended []string)
	// Execute executes the received program, with the state that [Config].Remember keeps. It returns
	// only where that fails.
	Execute() error
}

// Snapshot is the state of a Server that the next program takes over. It can be written as JSON.
type Snapshot struct {
	Key   []byte // the SHA-256 of the owner's key; nil without one
	Owner string
	// TTL is the time that is left, and Idle the limit; 0 means none.
	TTL, Idle time.Duration
	Upgrades  Upgrades
	Network   *api.ClaimNetwork // nil without a policy
}

// Upgrades counts the upgrades of a process, over all its programs.
type Upgrades struct{ Done, Refused, Failed uint64 }

func (s *Server) snapshot() Snapshot {
	s.gate.mu.Lock()
	f := Snapshot{Upgrades: s.gate.upgrades}
	s.gate.mu.Unlock()
	f.Network = s.network.claimed()
	if who := s.owner.who.Load(); who != nil {
		f.Key, f.Owner = who.key[:], who.name
	}
	l := s.life
	l.mu.Lock()
	defer l.mu.Unlock()
	f.Idle = l.idle
	if !l.deadline.IsZero() {
		f.TTL = max(time.Until(l.deadline), time.Nanosecond)
	}
	return f
}

// Remember calls [Config].Remember with the claim and the limits as they are.
func (s *Server) Remember() error {
	if s.cfg.Remember == nil {
		return nil
	}
	s.memory.Lock()
	defer s.memory.Unlock()
	return s.cfg.Remember(s.snapshot())
}

// inherit takes over from another program.
func (s *Server) inherit(f Snapshot) {
	if who := (&holder{name: f.Owner}); copy(who.key[:], f.Key) == len(who.key) {
		s.owner.who.Store(who)
	}
	s.life.limit(f.TTL, f.Idle)
	s.gate.upgrades = f.Upgrades
	s.network.claim = f.Network
}

const (
	// defaultUpgradeWait is how long actions have to end before an upgrade.
	defaultUpgradeWait = 30 * time.Second
	maxUpgradeWait     = time.Hour
	// programTime bounds the upload.
	programTime = 10 * time.Minute
	// upgradeLook is the pause between two checks for running work.
	upgradeLook = 20 * time.Millisecond
	// maxNamed bounds how much a refusal names that still runs.
	maxNamed = 10
)

// upgrade replaces the program of this process by the one in the body. This program answers once all
// has ended, and is replaced then. Where that fails, it goes on, without the engines that ended.
func (s *Server) upgrade(w http.ResponseWriter, r *http.Request) error {
	err := s.replaceProgram(w, r)
	s.gate.count(err)
	if failed, ok := errors.AsType[*executeError](err); ok { // the client has its answer
		s.gate.release() // once all else of the upgrade is undone
		httpserver.LogBroken(s.log, r, failed)
		return nil
	}
	return err
}

// executeError says why a program could not be executed after all had ended.
type executeError struct{ error }

// replaceProgram is upgrade without the count. The error is not nil, and an *executeError after the answer.
func (s *Server) replaceProgram(w http.ResponseWriter, r *http.Request) error {
	switch {
	case s.cfg.Upgrader == nil:
		return refuse(http.StatusConflict, "This server cannot be upgraded in place: %s", s.cfg.NoUpgrade)
	case !s.locked():
		return refuse(http.StatusConflict, "This server cannot be upgraded in place: it has no key, so the agent could send the program")
	case s.cfg.Executor.Ready() != nil:
		return refuse(http.StatusConflict, "This server cannot be upgraded before its first shell is ready: try again")
	}
	wait, err := waitIn(r, defaultUpgradeWait, maxUpgradeWait)
	if err != nil {
		return err
	}
	force, err := yes(r, "force")
	if err != nil {
		return err
	}
	if r.ContentLength > handover.MaxProgram {
		return unreadBody(r, &http.MaxBytesError{Limit: handover.MaxProgram})
	}
	if !s.gate.upgrading.TryLock() {
		return refuse(http.StatusConflict, "Another upgrade is under way: wait for its end")
	}
	defer s.gate.upgrading.Unlock()
	if err := s.Remember(); err != nil { // which the program reads when it is checked
		return err
	}
	version, err := s.receiveProgram(r)
	if err != nil {
		return err
	}
	defer s.cfg.Upgrader.Forget()
	s.gate.close(true)
	defer s.gate.close(false)
	left, err := s.awaitWork(r.Context(), wait)
	if err != nil {
		return err
	}
	if len(left) > 0 && !force {
		return refuse(http.StatusConflict, "The server was not upgraded, because these still run: %s. Wait for them or cancel them, or upgrade with force, which ends them",
			strings.Join(left[:min(len(left), maxNamed)], ", "))
	}
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return s.execute(context.WithoutCancel(r.Context()), conn, version, left)
}

// receiveProgram reads the program in a body, and returns its version.
func (s *Server) receiveProgram(r *http.Request) (version string, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), programTime)
	defer cancel()
	body := &failingReader{ctx: ctx, r: http.MaxBytesReader(nil, r.Body, handover.MaxProgram)}
	version, err = s.cfg.Upgrader.Receive(ctx, body)
	switch unfit, ok := errors.AsType[*handover.UnfitError](err); {
	case err == nil:
		return version, nil
	case ok:
		return "", &api.Error{
			Status: http.StatusUnprocessableEntity,
			Detail: "The program was refused, and this server keeps running: " + unfit.Reason,
		}
	case body.err != nil:
		return "", unreadBody(r, body.err)
	}
	return "", files.LegacyError(err, "the program", http.StatusInternalServerError)
}

// awaitWork waits so long at most until nothing runs, and returns the names of the work that still runs.
func (s *Server) awaitWork(ctx context.Context, wait time.Duration) (left []string, err error) {
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		if left = s.underWay(); len(left) == 0 {
			return nil, nil
		}
		select {
		case <-time.After(upgradeLook):
		case <-over.C:
			return s.underWay(), nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// execute ends everything, answers on conn, and executes the program that was received. left names
// the work that the upgrade cuts off. The error is an *executeError.
func (s *Server) execute(ctx context.Context, conn net.Conn, version string, left []string) error {
	s.actions.SuspendFlow(true) // a program that is to end may wait for a reader
	defer s.actions.SuspendFlow(false)
	s.actions.CancelAll()
	s.actions.Settle(cancelTime) // the end of the sessions would overtake the signals that cancelled programs may obey
	ended := slices.Concat(left, s.cfg.Upgrader.End(ctx))
	answer := api.Upgraded{Version: version, Previous: s.cfg.Version, Unknown: s.settle()}
	slices.Sort(ended)
	answer.Ended = append([]string{}, slices.Compact(ended)...)
	s.log.InfoContext(ctx, "executing another program", "version", version,
		"ended", answer.Ended, "unknown", answer.Unknown)
	s.gate.hold() // the next request after the answer is the next program's
	err := s.countUpgrade(1)
	if err == nil {
		var body []byte
		if body, err = api.Encode(answer); err == nil {
			_ = writeAnswer(conn, http.StatusOK, body) // the client may have left
			_ = conn.Close()
			err = s.cfg.Upgrader.Execute()
		}
	}
	return &executeError{errors.Join(fmt.Errorf("executing the program of version %s, after all sessions ended: %w",
		version, err), s.countUpgrade(-1))}
}

// countUpgrade adds to the upgrades that were done, where the next program reads it.
func (s *Server) countUpgrade(n int) error {
	s.gate.mu.Lock()
	s.gate.upgrades.Done += uint64(n) //nolint:gosec // it wraps around, and back
	s.gate.mu.Unlock()
	return s.Remember()
}

// failingReader remembers the error of a reader, which ends with ctx.
type failingReader struct {
	ctx context.Context //nolint:containedctx // of one request
	r   io.Reader
	err error
}

func (f *failingReader) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err == nil {
		err = context.Cause(f.ctx)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

// writeAnswer writes a response with a JSON body to a connection that was taken from its
// server.
func writeAnswer(conn net.Conn, status int, body []byte) error {
	_ = conn.SetWriteDeadline(time.Now().Add(httpserver.StallTime)) // without one it fails as well
	resp := http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {httpserver.JSON}},
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)), Close: true,
	}
	return resp.Write(conn)
}

// settleTime bounds how long actions are waited for whose sessions and programs ended.
const settleTime = 2 * time.Second

// settle waits until all actions are recorded, and returns the ids of those that are not.
func (s *Server) settle() []string {
	s.actions.Settle(settleTime)
	ids, _ := s.actions.UnderWay(true) // others did not begin
	return append([]string{}, ids...)
}

// underWay names the actions under way, other requests, and background work.
func (s *Server) underWay() (names []string) {
	ids, waiters := s.actions.UnderWay(false)
	for _, id := range ids {
		names = append(names, fmt.Sprintf("the action %q", id))
	}
	return slices.Concat(names, s.gate.requests(waiters), s.cfg.Upgrader.Running())
}
