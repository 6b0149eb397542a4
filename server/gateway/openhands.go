package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/server/reply"
)

// A client of OpenHands gives each of its calls ten seconds, and then gives up.
// It asks /runtime/{id} every two seconds for three minutes, until "ready".
const (
	// patience is how long /start and /resume wait before they answer that it is
	// under way.
	patience = 5 * time.Second
	// startTime bounds a creation that nobody waits for, its pull included.
	startTime = 30 * time.Minute
	// failTime is how long it is remembered why one failed.
	failTime = 15 * time.Minute
)

// start is a creation, or a return to life, that goes on while its caller asks
// now and then.
type start struct {
	secret string            // the key of the sandbox
	ask    [sha256.Size]byte // of what was asked for, which may be a megabyte
	cancel context.CancelCauseFunc
	done   chan struct{}

	// After done:
	sandbox *docker.Sandbox
	err     error
	ended   time.Time
}

// sessionKeyOf is the idempotency key of an OpenHands session: the sandbox's id
// follows from it, so that it is found again without anybody remembering it.
func sessionKeyOf(session string) string { return "openhands session " + session }

func (g *Gateway) openhandsStart(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	asked, err := api.DecodeRuntimeStart(body)
	if err != nil {
		return err
	}
	spec, err := g.runtimeSpec(asked)
	if err != nil {
		return err
	}
	id := docker.ID(spec.Key)
	secret := randomHex(32)
	if s, err := g.one(r.Context(), id); err == nil && s.State != docker.Creating && s.State != docker.Starting {
		if secret, err = s.Key(); err != nil {
			return err
		}
	} else if err != nil && !errors.Is(err, docker.ErrNotFound) {
		return err
	}
	spec.Secret = secret
	begun, err := g.begin(r.Context(), id, secret, string(body), func(ctx context.Context) (*docker.Sandbox, error) {
		made, err := g.create(ctx, spec)
		return made.sandbox, err
	})
	if err != nil {
		return err
	}
	status, err := begun.wait(r.Context())
	if err != nil {
		return err
	}
	return reply.Value(w, http.StatusOK, api.Runtime{
		RuntimeID: id, SessionID: asked.SessionID, URL: g.urlOf(r, id), SessionKey: begun.secret,
		WorkHosts: map[string]int{}, Status: "running", PodStatus: status,
	})
}

// begin does work in the background, unless it is being done.
func (g *Gateway) begin(ctx context.Context, id, secret, asked string, work func(context.Context) (*docker.Sandbox, error)) (*start, error) {
	ask := sha256.Sum256([]byte(asked))
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping.Load() {
		return nil, errStopping
	}
	for other, s := range g.starts { // what failed long ago
		if s.isDone() && time.Since(s.ended) > failTime {
			delete(g.starts, other)
		}
	}
	if s := g.starts[id]; s != nil && !s.isDone() {
		if s.ask != ask {
			return nil, fmt.Errorf("%w: sandbox %s is being made, and not as it is asked for now", docker.ErrConflict, id)
		}
		return s, nil
	}
	ctx, cancelTime := context.WithTimeoutCause(context.WithoutCancel(ctx), startTime, fmt.Errorf("it was not there after %v", startTime))
	ctx, cancel := context.WithCancelCause(ctx)
	s := &start{secret: secret, ask: ask, cancel: cancel, done: make(chan struct{})}
	g.starts[id] = s
	g.begun.Go(func() {
		defer cancelTime()
		defer cancel(nil)
		s.sandbox, s.err = work(ctx)
		s.ended = time.Now()
		close(s.done)
		g.mu.Lock()
		defer g.mu.Unlock()
		if s.err == nil && g.starts[id] == s { // from here on the engine knows all
			delete(g.starts, id)
		}
	})
	return s, nil
}

func (s *start) isDone() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// wait gives the status once the work is done, or before a client loses its
// patience.
func (s *start) wait(ctx context.Context) (status string, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-s.done:
		return "ready", s.err
	case <-timer.C:
		return "pending", nil
	case <-ctx.Done(): // the work goes on
		return "", fmt.Errorf("waiting for the sandbox: %w", context.Cause(ctx))
	}
}

// startOf is what is, or was, under way for a sandbox; nil if nothing.
func (g *Gateway) startOf(id string) *start {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.starts[id]
}

var sessionName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}$`)

// runtimeSpec is what /start asks for, on top of the defaults.
func (g *Gateway) runtimeSpec(a api.RuntimeStart) (docker.Spec, error) {
	s := g.spec(api.SandboxSpec{Image: a.Image, Env: a.Environment, Owner: "openhands"})
	s.Key = sessionKeyOf(a.SessionID)
	if sessionName.MatchString(a.SessionID) {
		s.Name = a.SessionID
	}
	if a.ResourceFactor != 1 {
		const memory, cpus = 2 << 30, 2 // the defaults of package docker
		s.Memory = int64(float64(orElse(s.Memory, memory)) * a.ResourceFactor)
		s.CPUs = orElse(s.CPUs, cpus) * a.ResourceFactor
	}
	switch a.RuntimeClass {
	case "", s.Runtime:
	case "gvisor":
		s.Runtime = "runsc"
	default:
		return s, refuse(http.StatusUnprocessableEntity, "runtime_class %.64q is not what this gateway uses: start it with --runtime, or leave it out", a.RuntimeClass)
	}
	return s, readCommand(a.Command, &s)
}

// readCommand takes from the command line of OpenHands' own server what is to be
// the same here. The rest is for that server.
func readCommand(words []string, s *docker.Spec) error {
	for i, word := range words {
		name, value, given := strings.Cut(word, "=")
		if !given && i+1 < len(words) {
			value = words[i+1]
		}
		switch name {
		case "--working-dir":
			s.WorkDir = value
		case "--username":
			s.User = value
			if value == "root" {
				s.UserID = 0
			}
		case "--user-id":
			id, err := strconv.Atoi(value)
			if err != nil {
				return refuse(http.StatusUnprocessableEntity, "command: --user-id %.64q is not a number", value)
			}
			s.UserID = id
		}
	}
	return nil
}

func (g *Gateway) openhandsSession(w http.ResponseWriter, r *http.Request) error {
	session := r.PathValue("session_id")
	if r.URL.RawPath != "" { // then chi gives it as it was sent
		var err error
		if session, err = url.PathUnescape(session); err != nil {
			return refuse(http.StatusNotFound, "The session's name: %v", err)
		}
	}
	id := docker.ID(sessionKeyOf(session))
	answer := api.Runtime{RuntimeID: id, SessionID: session, URL: g.urlOf(r, id), WorkHosts: map[string]int{}, Status: "running", PodStatus: "pending"}
	if s := g.startOf(id); s != nil && !s.isDone() {
		answer.SessionKey = s.secret
		return reply.Value(w, http.StatusOK, answer)
	}
	s, err := g.one(r.Context(), id)
	if err != nil {
		return err
	}
	switch s.State {
	case docker.Paused:
		answer.Status = "paused"
	case docker.Ready, docker.Busy, docker.Idle:
		answer.PodStatus = "ready"
	default: // half made by somebody who died, or ended by itself: to be started again
		answer.Status = "stopped"
	}
	if answer.SessionKey, err = s.Key(); err != nil {
		return err
	}
	return reply.Value(w, http.StatusOK, answer)
}

func (g *Gateway) openhandsRuntime(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("runtime_id")
	status, detail, err := g.podStatus(r.Context(), id)
	if err != nil {
		return err
	}
	return tellStatus(w, id, status, detail)
}

func tellStatus(w http.ResponseWriter, id, status, detail string) error {
	return reply.Value(w, http.StatusOK, api.RuntimeStatus{RuntimeID: id, PodStatus: status, RestartReasons: []string{}, Detail: detail})
}

// podStatus is how a sandbox is, in OpenHands' words. "ready" is only said of one
// whose server says so at this moment: clients do not wait any longer then.
func (g *Gateway) podStatus(ctx context.Context, id string) (status, detail string, err error) {
	begun := g.startOf(id)
	if begun != nil && !begun.isDone() {
		return "pending", g.cfg.Phases.waiting(id), nil
	}
	s, err := g.one(ctx, id)
	switch {
	case errors.Is(err, docker.ErrNotFound):
		if begun != nil && begun.err != nil {
			return "failed", begun.err.Error(), nil //nolint:nilerr // it is the answer
		}
		return "not found", "", nil
	case err != nil:
		return "", "", err
	}
	switch s.State {
	case docker.Ready, docker.Busy, docker.Idle:
		if silent := g.answers(ctx, s); silent != nil {
			return "running", silent.Error(), nil //nolint:nilerr // it is the answer
		}
		return "ready", "", nil
	case docker.Stopped:
		detail = "it is stopped: " + s.Detail
		if begun != nil && begun.err != nil {
			detail = begun.err.Error()
		}
		return "failed", detail, nil
	case docker.Gone:
		return "not found", "", nil
	}
	return "pending", "it is " + string(s.State), nil
}

// aliveTime bounds the wait for a server that was ready already.
const aliveTime = 3 * time.Second

// answers asks the server of a sandbox whether it takes actions.
func (g *Gateway) answers(ctx context.Context, s *docker.Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, aliveTime)
	defer cancel()
	transport := &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return s.Dial(ctx) },
		DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader,
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://sandbox/alive", nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("its server does not answer: %w", err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("its server says %s", response.Status)
	}
	return nil
}

// openhandsStop removes a sandbox: clients stop it when they are done with it,
// and do not come back for it.
func (g *Gateway) openhandsStop(w http.ResponseWriter, r *http.Request) error {
	id, err := runtimeID(w, r)
	if err != nil {
		return err
	}
	if s := g.startOf(id); s != nil && !s.isDone() {
		s.cancel(errors.New("it was stopped before it was there"))
		select {
		case <-s.done:
		case <-r.Context().Done():
			return fmt.Errorf("waiting for the end of a creation: %w", context.Cause(r.Context()))
		}
	}
	s, err := g.one(r.Context(), id)
	if err == nil {
		err = g.remove(r.Context(), s)
	}
	if err != nil && !errors.Is(err, docker.ErrNotFound) {
		return err
	}
	return tellStatus(w, id, "not found", "")
}

func runtimeID(w http.ResponseWriter, r *http.Request) (string, error) {
	body, err := readBody(w, r)
	if err != nil {
		return "", err
	}
	return api.DecodeRuntimeID(body)
}

// openhandsPause freezes a sandbox. One that is stopped does not run either.
func (g *Gateway) openhandsPause(w http.ResponseWriter, r *http.Request) error {
	id, err := runtimeID(w, r)
	if err != nil {
		return err
	}
	s, err := g.one(r.Context(), id)
	if err != nil {
		return err
	}
	if s.State != docker.Stopped {
		if err := g.on(r.Context(), s, g.cfg.Host.Pause); err != nil {
			return err
		}
	}
	return tellStatus(w, id, "pending", "it is "+string(s.State))
}

func (g *Gateway) openhandsResume(w http.ResponseWriter, r *http.Request) error {
	id, err := runtimeID(w, r)
	if err != nil {
		return err
	}
	s, err := g.one(r.Context(), id)
	if err != nil {
		return err
	}
	status := "ready"
	if s.State == docker.Stopped {
		secret, err := s.Key()
		if err != nil {
			return err
		}
		begun, err := g.begin(r.Context(), id, secret, "resume", func(ctx context.Context) (*docker.Sandbox, error) {
			return s, g.on(ctx, s, g.cfg.Host.Start)
		})
		if err != nil {
			return err
		}
		if status, err = begun.wait(r.Context()); err != nil {
			return err
		}
	} else if err := g.on(r.Context(), s, g.cfg.Host.Resume); err != nil {
		return err
	}
	return tellStatus(w, id, status, "")
}

// randomHex is 2n random hexadecimal digits.
func randomHex(n int) string {
	data := make([]byte, n)
	_, _ = rand.Read(data) // never fails
	return hex.EncodeToString(data)
}
