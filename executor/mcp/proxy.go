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
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	// CallTime bounds a call that names no limit.
	CallTime = 120 * time.Second
	// listTime is how long a list waits for a server before it does without
	// it. Clients wait 30 seconds.
	listTime = 20 * time.Second
	// retryTime is how long a server that could not be started is not started
	// again: whoever lists tools in a loop would do nothing else.
	retryTime = 10 * time.Second
	// MaxServers bounds the servers of a sandbox.
	MaxServers = 64
	// maxCalls bounds the calls in flight, and so the memory of their results;
	// apart from these, the lists, which wait.
	maxCalls = 32
	// maxSessions bounds the clients that are connected.
	maxSessions = 64
)

// The reasons for which nothing was done.
var (
	// ErrNone says that no servers were configured yet.
	ErrNone = errors.New("no MCP servers are configured")
	// ErrMany says that there are too many servers, clients or calls.
	ErrMany = errors.New("too many")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("the MCP servers are closed")
)

// Config says how servers are run. The zero value runs them as this process.
type Config struct {
	// Dir is where they start.
	Dir string
	// Env is their environment, apart from their own variables.
	Env []string
	// User is whose rights they have; nil means those of this process.
	User *syscall.Credential
	// As does work with the rights of User on files; nil calls it as it is.
	As func(work func() error) error
	// Logger takes a line for each server that failed, without its words.
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
	return s.Name == other.Name && s.Command == other.Command && slices.Equal(s.Args, other.Args) && maps.Equal(s.Env, other.Env)
}

// Proxy offers the tools of many servers as those of one. Its methods may be
// called concurrently. The zero value is not ready; New makes one, which has no
// goroutine until it is used.
type Proxy struct {
	calls    chan struct{} // one element for each call in flight
	lists    chan struct{} // and for each list
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
	if cfg.As == nil {
		cfg.As = func(work func() error) error { return work() }
	}
	return &Proxy{cfg: cfg, calls: make(chan struct{}, maxCalls), lists: make(chan struct{}, maxCalls), listTime: listTime, runners: map[*runner]bool{}, sessions: map[net.Conn]bool{}}
}

// SetEnv sets the environment of servers that are started from now on.
func (p *Proxy) SetEnv(env []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cfg.Env = env
}

// Update replaces the servers at once: whoever connects from now on gets these,
// whoever is connected keeps the others until it leaves. A server that stays the
// same keeps running. Nothing is started. Of two servers of one name the later
// one counts. The problems name what cannot work, for whoever configured it.
func (p *Proxy) Update(servers []Server) (problems []string, err error) {
	byName := map[string]Server{}
	for _, s := range servers {
		if _, ok := byName[s.Name]; ok {
			problems = append(problems, fmt.Sprintf("MCP server %q: it is configured twice; the later one is used", s.Name))
		}
		byName[s.Name] = s
	}
	if len(byName) > MaxServers {
		return nil, fmt.Errorf("%w MCP servers: %d, and at most %d run in one sandbox", ErrMany, len(byName), MaxServers)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	if p.current == nil && len(byName) == 0 {
		return nil, nil // an empty list configures nothing
	}
	next := &set{uses: 1}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		s := byName[name]
		if _, err := lookPath(s.Command, p.cfg.Dir, environment(p.cfg.Env, s.Env)); err != nil {
			problems = append(problems, mask(fmt.Sprintf("MCP server %q: %v", name, err), s.Env))
		}
		next.runners = append(next.runners, p.runner(s))
	}
	old := p.current
	p.current = next
	p.leave(old)
	return problems, nil
}

// runner returns the runner of a server, the present one where it is the same
// and not known to fail. The caller holds mu.
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

// leave gives up a use of a set, and of its servers with the last one. The
// caller holds mu.
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

// enter takes a use of the present set, which exit gives up.
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

// State counts the servers that are configured, those that run, and those that
// failed. configured is false until there was one.
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

// Open connects a client: what is written to the connection is taken as its
// messages, JSON-RPC of the Model Context Protocol, one after the other, and what
// is read are those for it, each a line. The caller bounds the former. The client
// must be read from, and must be closed. The error is ErrNone, ErrMany or ErrClosed.
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
	session, err := s.server(p).Connect(context.Background(), &sdk.IOTransport{Reader: ours, Writer: ours, MaxLineLength: -1}, nil)
	if err != nil {
		p.dismiss(ours)
		p.exit(s)
		return nil, fmt.Errorf("connecting a client to the MCP servers: %w", err)
	}
	go func() {
		defer p.exit(s)
		defer p.dismiss(ours)
		_ = session.Wait() // that the client left is no error
	}()
	return theirs, nil
}

// admit takes in a client.
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

// Result is what a tool answered.
type Result struct {
	// Meta, Content and Structured are JSON: an object or null, a list, any
	// value or null.
	Meta, Content, Structured []byte
	// IsError says that the tool failed, which Content explains.
	IsError bool
}

// Call calls a tool. A limit of 0 means CallTime.
// ctx and the limit bound the call; the server is told to give up. The error is
// ErrNone, ErrMany, ErrClosed, the cause of ctx's end, or what became of the
// call, in words for whoever asked.
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
	r.Meta, err = encode(answer.Meta)
	if err == nil {
		r.Content, err = encode(answer.Content)
	}
	if err == nil {
		r.Structured, err = encode(answer.StructuredContent)
	}
	if err != nil {
		return Result{}, fmt.Errorf("the result of the tool %q cannot be encoded: %w", name, err)
	}
	return r, nil
}

// encode writes JSON. Go writes what means something in HTML by its number, and
// the library does not let that be switched off; a model that reads of a page would
// read little else.
func encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	plain := text[:0]
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			plain = append(plain, text[i])
			continue
		}
		skip := 5
		var c byte
		switch string(text[i:min(len(text), i+6)]) {
		case `\u003c`:
			c = '<'
		case `\u003e`:
			c = '>'
		case `\u0026`:
			c = '&'
		default: // two characters; a backslash is never the last
			plain = append(plain, '\\')
			c, skip = text[i+1], 1
		}
		plain = append(plain, c)
		i += skip
	}
	return plain, err
}

// Close disconnects all clients, ends all servers, and returns when they are
// gone.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	for conn := range p.sessions {
		_ = conn.Close()
	}
	for r := range p.runners { // those too that calls in flight use
		p.ending.Go(r.close)
	}
	p.mu.Unlock()
	p.serving.Wait()
	p.ending.Wait()
}

// runner keeps one server running as long as sets use it.
type runner struct {
	spec  Server
	proxy *Proxy
	uses  int // guarded by the proxy

	mu     sync.Mutex
	last   *process // nil before the first use
	closed bool
}

// process returns the running server, starting it where it is not. ctx bounds
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

// claim returns the last start of the server, or begins a new one.
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
			r.proxy.ending.Go(r.last.running.Wait) // it is gone, and has its last words yet to log
		}
		r.last = start(&cfg, r.spec)
	}
	return r.last, nil
}

// failed tells whether the server could not be started, or was and ended.
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

// close ends the server for good.
func (r *runner) close() {
	r.mu.Lock()
	r.closed = true
	last := r.last
	r.mu.Unlock()
	if last != nil {
		last.stop()
	}
}

// errLimit is the cause that ends a call whose time is over.
var errLimit = errors.New("the call took too long")

// ask lets f ask a server, and says in words why there was no answer.
func ask[T any](ctx context.Context, r *runner, limit time.Duration, what string, f func(ctx context.Context, p *process) (T, error)) (answer T, err error) {
	bound, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p, err := r.process(bound)
	if err == nil {
		answer, err = f(bound, p)
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
	select {
	case <-p.broken:
		<-p.over
		return answer, p.failure()
	default:
		return answer, r.explain(err)
	}
}

// explain names the server that an error is about.
func (r *runner) explain(err error) error {
	if _, ok := errors.AsType[*failure](err); ok || errors.Is(err, ErrClosed) {
		return err
	}
	return &failure{server: r.spec.Name, reason: mask(err.Error(), r.spec.Env)}
}

// admitCall takes one of the places for calls in flight, which leave gives back,
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
