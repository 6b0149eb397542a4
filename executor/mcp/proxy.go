package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/identity"
)

const (
	// CallTime bounds a call that names no limit.
	CallTime = 120 * time.Second
	// listTime bounds the wait for one server in a list. Clients wait 30
	// seconds for the list.
	listTime = 20 * time.Second
	// retryTime is the time between two attempts to start a server that failed.
	// It keeps a client that lists tools in a loop from starting processes all
	// the time.
	retryTime = 10 * time.Second
	// MaxServers bounds the servers of a sandbox.
	MaxServers = 64
	// maxCalls bounds the calls in flight, and so the memory of their results.
	// Lists have the same bound of their own.
	maxCalls = 32
	// maxSessions bounds the clients that are connected.
	maxSessions = 64
)

// Errors of calls and sessions that did nothing.
var (
	// ErrNone says that no servers were configured yet.
	ErrNone = errors.New("no MCP servers are configured")
	// ErrMany says that there are too many servers, clients or calls.
	ErrMany = errors.New("too many")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("the MCP servers are closed")
)

// Config says how servers run. The zero value runs them as this process.
type Config struct {
	// Dir is their working directory.
	Dir string
	// Env is their environment, without the variables of each server.
	Env []string
	// User runs them; nil means the user of this process.
	User *identity.User
	// Logger gets a line for each server that failed, without its output.
	Logger *slog.Logger
}

// Server is an MCP server that speaks over its standard input and output.
type Server struct {
	Name    string
	Command string
	Args    []string
	Env     map[string]string
}

func (s Server) equal(other Server) bool {
	return s.Name == other.Name && s.Command == other.Command && slices.Equal(s.Args, other.Args) &&
		maps.Equal(s.Env, other.Env)
}

// Proxy offers the tools of many servers as those of one. Its methods may be
// called concurrently. Use New to make one. It has no goroutine until its first
// use.
type Proxy struct {
	calls    chan struct{} // a semaphore for calls in flight
	lists    chan struct{} // a semaphore for lists
	listTime time.Duration

	mu       sync.Mutex
	cfg      Config
	current  *set // nil before the first Update
	runners  map[*runner]bool
	sessions map[net.Conn]bool
	closed   bool

	serving sync.WaitGroup // calls and sessions
	ending  sync.WaitGroup // servers
}

// New returns a proxy without servers. The caller must call Close if it called
// Update.
func New(cfg Config) *Proxy {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Proxy{cfg: cfg, calls: make(chan struct{}, maxCalls), lists: make(chan struct{}, maxCalls), listTime: listTime, runners: map[*runner]bool{}, sessions: map[net.Conn]bool{}}
}

// SetEnv sets the environment of servers that start later.
func (p *Proxy) SetEnv(env []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg.Env = env
}

// Update replaces the servers: clients that connect later use the new ones,
// connected clients keep the old ones until they leave. An unchanged server
// keeps running. Update starts no server. If two servers have the same name,
// the later one counts. The problems describe, for the operator, the servers
// that cannot work.
func (p *Proxy) Update(servers []Server) (problems []string, err error) {
	byName := map[string]Server{}
	for _, s := range servers {
		if _, ok := byName[s.Name]; ok {
			problems = append(problems, fmt.Sprintf("MCP server %q is configured twice; the later one is used", s.Name))
		}
		byName[s.Name] = s
	}
	if len(byName) > MaxServers {
		return nil, fmt.Errorf("%w MCP servers: %d, and at most %d run in one sandbox", ErrMany, len(byName), MaxServers)
	}
	p.mu.Lock()
	cfg := p.cfg
	p.mu.Unlock()
	names := slices.Sorted(maps.Keys(byName))
	for _, name := range names { // without mu: a file system may not answer
		s := byName[name]
		if _, err := lookPath(&cfg, s.Command, proc.Environ(cfg.Env, s.Env)); err != nil {
			problems = append(problems, mask(fmt.Sprintf("MCP server %q: %v", name, err), s.Env))
		}
	}
	problems = append(problems, collisions(names)...)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	if p.current == nil && len(byName) == 0 {
		return nil, nil // an empty list configures nothing
	}
	next := &set{uses: 1}
	for _, name := range names {
		next.runners = append(next.runners, p.runner(byName[name]))
	}
	old := p.current
	p.current = next
	p.leave(old)
	return problems, nil
}

// collisions describes the servers whose tools can have the same name in the set.
func collisions(servers []string) (problems []string) {
	for _, short := range servers {
		for _, long := range servers {
			if rest, ok := strings.CutPrefix(long, short+separator); ok {
				problems = append(problems, fmt.Sprintf("tools of the MCP servers %q and %q can have the same name: a tool %q of %q is hidden by the tool %q of %q; rename one of the servers",
					short, long, rest+separator+"NAME", short, "NAME", long))
			}
		}
	}
	return problems
}

// runner returns the runner of a server: the current one if it is the same and
// did not fail. The caller holds mu.
func (p *Proxy) runner(s Server) *runner {
	if p.current != nil {
		for _, r := range p.current.runners {
			if r.spec.equal(s) && !r.failed() {
				r.uses++
				return r
			}
		}
	}
	r := &runner{spec: s, proxy: p, uses: 1}
	p.runners[r] = true
	return r
}

// leave releases a set, and its servers if it was the last user. The caller
// holds mu.
func (p *Proxy) leave(s *set) {
	if s == nil {
		return
	}
	if s.uses--; s.uses > 0 {
		return
	}
	for _, r := range s.runners {
		if r.uses--; r.uses == 0 {
			delete(p.runners, r)
			p.ending.Go(r.close)
		}
	}
}

// enter acquires the current set, which exit releases.
func (p *Proxy) enter() (*set, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, ErrClosed
	case p.current == nil:
		return nil, ErrNone
	}
	p.current.uses++
	p.serving.Add(1)
	return p.current, nil
}

func (p *Proxy) exit(s *set) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leave(s)
	p.serving.Done()
}

// State counts the configured, the running and the failed servers. configured
// is false before the first server was configured.
func (p *Proxy) State() (servers, running, failed int, configured bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return 0, 0, 0, false
	}
	for _, r := range p.current.runners {
		switch {
		case r.failed():
			failed++
		case r.running():
			running++
		}
	}
	return len(p.current.runners), running, failed, true
}

// PIDs returns the process ids of the servers that were started, of which some may have ended. until
// bounds the wait for those that are being started.
func (p *Proxy) PIDs(until time.Time) (pids []int) {
	for _, last := range p.lastRuns() {
		if channel.ClosedWithin(last.launched, time.Until(until)) && last.cmd != nil && last.cmd.Process != nil {
			pids = append(pids, last.cmd.Process.Pid)
		}
	}
	return pids
}

// lastRuns returns the last run of each server that had one.
func (p *Proxy) lastRuns() (last []*process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return nil
	}
	for _, r := range p.current.runners {
		r.mu.Lock()
		if r.last != nil {
			last = append(last, r.last)
		}
		r.mu.Unlock()
	}
	return last
}

// Open connects a client. Its messages, JSON-RPC of the Model Context Protocol,
// are written to the connection one after the other, and the messages for it
// are read from there, one a line. The caller bounds the written messages, and
// must read from the connection and close it. The error is ErrNone, ErrMany or
// ErrClosed.
func (p *Proxy) Open() (net.Conn, error) {
	s, err := p.enter()
	if err != nil {
		return nil, err
	}
	ours, theirs := net.Pipe()
	if err := p.admit(ours); err != nil {
		p.exit(s)
		return nil, err
	}
	// No context: the connection's end is the session's.
	session, err := s.server(p).Connect(context.Background(),
		&sdk.IOTransport{Reader: ours, Writer: ours, MaxLineLength: -1}, nil)
	if err != nil {
		p.dismiss(ours)
		p.exit(s)
		return nil, fmt.Errorf("connecting a client to the MCP servers: %w", err)
	}
	go func() {
		defer p.exit(s)
		defer p.dismiss(ours)
		_ = session.Wait() // a client that leaves is not an error
	}()
	return theirs, nil
}

// admit registers a client.
func (p *Proxy) admit(conn net.Conn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case len(p.sessions) >= maxSessions:
		return fmt.Errorf("%w clients are connected to the MCP servers: %d", ErrMany, maxSessions)
	}
	p.sessions[conn] = true
	return nil
}

func (p *Proxy) dismiss(conn net.Conn) {
	_ = conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, conn)
}

// Result is the result of a tool call.
type Result struct {
	// Meta, Content and Structured are JSON: an object or null, a list, any
	// value or null.
	Meta, Content, Structured []byte
	// IsError says that the tool failed; Content has the reason.
	IsError bool
}

// Call calls a tool. A limit of 0 means CallTime. ctx and the limit bound the
// call; at their end the server gets a cancellation. The error is ErrNone,
// ErrMany, ErrClosed, the cause of ctx's end, or an explanation of the failure
// for the caller.
func (p *Proxy) Call(ctx context.Context, name string, arguments map[string]any, limit time.Duration) (Result, error) {
	s, err := p.enter()
	if err != nil {
		return Result{}, err
	}
	defer p.exit(s)
	answer, err := s.call(ctx, p, &sdk.CallToolParams{Name: name, Arguments: arguments}, cmp.Or(limit, CallTime))
	if err != nil {
		return Result{}, err
	}
	r := Result{IsError: answer.IsError}
	var errs [3]error
	r.Meta, errs[0] = encode(answer.Meta)
	r.Content, errs[1] = encode(answer.Content)
	r.Structured, errs[2] = encode(answer.StructuredContent)
	if err := cmp.Or(errs[:]...); err != nil {
		return Result{}, fmt.Errorf("the result of the tool %q cannot be encoded: %w", name, err)
	}
	return r, nil
}

// encode encodes JSON. Go escapes the special characters of HTML, and the
// library has no option against it; the result would be hard to read for a
// model.
func encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return []byte(plainHTML.Replace(string(text))), err
}

// plainHTML leaves an escaped backslash as it is, whatever comes after it.
var plainHTML = strings.NewReplacer(`\\`, `\\`, `\u003c`, "<", `\u003e`, ">", `\u0026`, "&")

// Close disconnects all clients, ends all servers, and returns after their end.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	for conn := range p.sessions {
		_ = conn.Close()
	}
	for r := range p.runners { // also those of calls in flight
		p.ending.Go(r.close)
	}
	p.mu.Unlock()
	p.serving.Wait()
	p.ending.Wait()
}

// runner keeps one server running while a set uses it.
type runner struct {
	spec  Server
	proxy *Proxy
	uses  int // guarded by the proxy

	mu     sync.Mutex
	last   *process // nil before the first use
	closed bool
}

// process returns the running server, and starts it if necessary. ctx bounds
// the wait and not the start.
func (r *runner) process(ctx context.Context) (*process, error) {
	p, err := r.claim()
	if err != nil {
		return nil, err
	}
	select {
	case <-p.ready:
		return p, p.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// claim returns the last run of the server, or begins a new one.
func (r *runner) claim() (*process, error) {
	r.proxy.mu.Lock()
	cfg := r.proxy.cfg
	r.proxy.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return nil, ErrClosed
	case r.last == nil, r.last.gone() && (r.last.served() || time.Since(r.last.begun) > retryTime):
		if r.last != nil {
			r.proxy.ending.Go(r.last.running.Wait) // it has ended and must still log its end
		}
		r.last = start(&cfg, r.spec)
	}
	return r.last, nil
}

// failed reports whether the last run failed to start or has ended.
func (r *runner) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last != nil && r.last.gone()
}

func (r *runner) running() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last != nil && !r.last.gone()
}

// close ends the server forever.
func (r *runner) close() {
	r.mu.Lock()
	r.closed = true
	last := r.last
	r.mu.Unlock()
	if last != nil {
		last.stop()
	}
}

// errLimit is the cause that ends a call at its time limit.
var errLimit = errors.New("the call took too long")

// ask calls f with a running server and explains its errors.
func ask[T any](
	ctx context.Context, r *runner, limit time.Duration, what string, f func(ctx context.Context, p *process) (T, error),
) (answer T, err error) {
	bound, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p, err := r.process(bound)
	if err == nil {
		raw := &rawResult{}
		answer, err = f(context.WithValue(bound, rawResultKey{}, raw), p)
		p.pipe.forget(raw)
	}
	_, said := errors.AsType[*jsonrpc.Error](err)
	switch {
	case err == nil, said:
		return answer, err
	case ctx.Err() != nil && !errors.Is(context.Cause(ctx), errLimit):
		return answer, context.Cause(ctx)
	case p == nil && bound.Err() != nil:
		return answer, fmt.Errorf("MCP server %q was not ready within %v; it may be later", r.spec.Name, limit)
	case bound.Err() != nil:
		return answer, fmt.Errorf("MCP server %q did not answer %s within %v", r.spec.Name, what, limit)
	case p == nil || !p.served():
		return answer, r.explain(err)
	}
	if !channel.Closed(p.broken) {
		return answer, r.explain(err)
	}
	<-p.over
	return answer, p.failure()
}

// explain adds the name of the server to an error.
func (r *runner) explain(err error) error {
	if _, ok := errors.AsType[*failure](err); ok || errors.Is(err, ErrClosed) {
		return err
	}
	return &failure{server: r.spec.Name, reason: mask(err.Error(), r.spec.Env)}
}

// admitCall acquires the semaphore of calls in flight, which leave releases,
// and bounds the call.
func (p *Proxy) admitCall(ctx context.Context, limit time.Duration) (bound context.Context, leave func(), err error) {
	select {
	case p.calls <- struct{}{}:
		bound, cancel := context.WithTimeoutCause(ctx, limit, errLimit)
		return bound, func() { cancel(); <-p.calls }, nil
	default:
		return nil, nil, fmt.Errorf("%w calls of MCP servers are in flight: %d; try again", ErrMany, maxCalls)
	}
}
