package gateway

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/sandbox"
)

// A client of OpenHands gives each of its calls ten seconds, and then gives up.
// The client asks /runtime/{id} every two seconds for three minutes, until "ready".
const (
	// patience is how long /start and /resume wait before they answer "pending".
	patience = 5 * time.Second
	// startTime limits a creation in the background, including the pull.
	startTime = 30 * time.Minute
	// failTime is how long the error of a failed creation is kept.
	failTime = 15 * time.Minute
)

// buildPaths are those by which clients of OpenHands have images built.
var buildPaths = []string{"/registry_prefix", "/image_exists", "/build", "/build_status"}

// buildsNothing answers the build paths with the setting that needs no build.
func (g *Gateway) buildsNothing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(buildPaths, r.URL.Path) {
			g.fail(w, r, api.NotFound("This gateway builds no images, and nothing needs to be built: give any image in runtime_container_image"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// start is a creation, or the start of a stopped sandbox, that runs in the background
// while its caller polls.
type start struct {
	secret string            // the key of the sandbox
	ask    [sha256.Size]byte // of the request, which may have a megabyte
	cancel context.CancelCauseFunc
	done   chan struct{}

	// After done:
	sandbox *sandbox.Sandbox
	err     error
	ended   time.Time
}

// openhandsOwner is the owner of every sandbox that /start created.
const openhandsOwner = "openhands"

// sessionKeyOf is the idempotency key of an OpenHands session: the sandbox's id
// follows from it, so that a new gateway finds it again.
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
	id := sandbox.ID(spec.Key)
	secret := random.Hex(32)
	if s, err := g.one(r.Context(), id); err == nil && s.State != sandbox.Creating && s.State != sandbox.Starting {
		if secret, err = s.Key(); err != nil {
			return err
		}
	} else if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return err
	}
	spec.Secret = secret
	begun, err := g.begin(r.Context(), id, secret, string(body), func(ctx context.Context) (*sandbox.Sandbox, error) {
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
	return writeJSON(w, http.StatusOK, api.Runtime{
		RuntimeID: id, SessionID: asked.SessionID, URL: g.urlOf(r, id), SessionKey: begun.secret,
		WorkHosts: map[string]int{}, Status: "running", PodStatus: status,
	})
}

// begin does work in the background, unless the same work is running.
func (g *Gateway) begin(ctx context.Context, id, secret, asked string, work func(context.Context) (*sandbox.Sandbox, error)) (*start, error) {
	ask := sha256.Sum256([]byte(asked))
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopping.Load() {
		return nil, errStopping
	}
	for other, s := range g.starts { // those that failed long ago
		if channel.Closed(s.done) && time.Since(s.ended) > failTime {
			delete(g.starts, other)
		}
	}
	if s := g.starts[id]; s != nil && !channel.Closed(s.done) {
		if s.ask != ask {
			return nil, fmt.Errorf("%w: sandbox %s is being created with another specification", sandbox.ErrConflict, id)
		}
		return s, nil
	}
	ctx, cancelTime := context.WithTimeoutCause(context.WithoutCancel(ctx), startTime, fmt.Errorf("it was not ready after %v", startTime))
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
		if s.err == nil && g.starts[id] == s { // from here on the platform has all of it
			delete(g.starts, id)
		}
	})
	return s, nil
}

// wait returns the status once the work is done, or "pending" before clients give up.
func (s *start) wait(ctx context.Context) (status string, err error) {
	select {
	case <-s.done:
		return "ready", s.err
	case <-time.After(patience):
		return "pending", nil
	case <-ctx.Done(): // the work goes on
		return "", fmt.Errorf("waiting for the sandbox: %w", context.Cause(ctx))
	}
}

// startOf returns the running or failed start of a sandbox, or nil.
func (g *Gateway) startOf(id string) *start {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.starts[id]
}

// runtimeSpec returns the specification of a call of /start, on top of the defaults.
func (g *Gateway) runtimeSpec(a api.RuntimeStart) (sandbox.Spec, error) {
	s, err := g.spec(api.SandboxSpec{Image: a.Image, Env: a.Environment, Owner: openhandsOwner})
	if err != nil {
		return s, err
	}
	s.Key = sessionKeyOf(a.SessionID)
	if sandbox.IsName(a.SessionID) {
		s.Name = a.SessionID
	}
	if a.ResourceFactor != 1 {
		s.Memory = int64(float64(cmp.Or(s.Memory, sandbox.DefaultMemory)) * a.ResourceFactor)
		s.CPUs = cmp.Or(s.CPUs, sandbox.DefaultCPUs) * a.ResourceFactor
	}
	switch a.RuntimeClass {
	case "", s.Runtime:
	case "gvisor":
		s.Runtime = "runsc"
	default:
		return s, refuse(http.StatusUnprocessableEntity, "runtime_class %.64q is not the runtime of this gateway: start the gateway with --runtime, or leave runtime_class out", a.RuntimeClass)
	}
	if err := readCommand(a.Command, &s); err != nil {
		return s, err
	}
	return s, readEnvironment(a.Environment, &s)
}

// readCommand reads the options of OpenHands' own server that a sandbox has as well
// from its command line. The rest is for that server.
func readCommand(words []string, s *sandbox.Spec) error {
	var plugins []string
	browser := ""
	for i := range words {
		name, value, joined := strings.Cut(words[i], "=")
		if !joined && i+1 < len(words) {
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
		case "--plugins":
			given := []string{value}
			if !joined {
				given = wordsUntilFlag(words[i+1:])
			}
			if err := checkPlugins(given); err != nil {
				return err
			}
			plugins = append(plugins, given...)
		case "--enable-browser", "--no-enable-browser":
			browser = name
		}
	}
	var flags []string
	slices.Sort(plugins)
	for _, plugin := range slices.Compact(plugins) {
		flags = append(flags, "--plugins="+plugin)
	}
	if browser != "" {
		flags = append(flags, browser)
	}
	s.Flags = mergeFlags(s.Flags, flags)
	return nil
}

// wordsUntilFlag returns the words before the next flag.
func wordsUntilFlag(words []string) []string {
	if i := slices.IndexFunc(words, func(word string) bool { return strings.HasPrefix(word, "-") }); i >= 0 {
		return words[:i]
	}
	return words
}

func checkPlugins(names []string) error {
	if len(names) == 0 {
		return refuse(http.StatusUnprocessableEntity, "command: --plugins needs at least one of %s", strings.Join(api.Plugins, ", "))
	}
	for _, name := range names {
		if !slices.Contains(api.Plugins, name) {
			return refuse(http.StatusUnprocessableEntity, "command: plugin %.64q is unknown; use %s", name, strings.Join(api.Plugins, ", "))
		}
	}
	return nil
}

// readEnvironment turns the variables that configure OpenHands' own server into
// flags of ours. The commands in the sandbox get them too.
func readEnvironment(env map[string]string, s *sandbox.Spec) error {
	const name = "NO_CHANGE_TIMEOUT_SECONDS"
	value := env[name]
	if value == "" {
		return nil
	}
	seconds, err := strconv.ParseUint(value, 10, 31)
	if err != nil || seconds == 0 {
		return refuse(http.StatusUnprocessableEntity, "environment: %s is %.64q, which is not a whole number of seconds from 1 on", name, value)
	}
	s.Flags = mergeFlags(s.Flags, []string{fmt.Sprintf("--soft-timeout=%ds", seconds)})
	return nil
}

// mergeFlags returns the operator's flags with those that a client asks for,
// which override the operator's of the same name. If a client asks for the operator's
// flags only, the result is the operator's list, so that a warm sandbox fits.
func mergeFlags(operators, asked []string) []string {
	name := func(flag string) string {
		name, _, _ := strings.Cut(flag, "=")
		return strings.Replace(name, "--no-", "--", 1)
	}
	decided := map[string]bool{}
	for _, flag := range asked {
		decided[name(flag)] = true
	}
	var merged []string
	for _, flag := range operators {
		if !decided[name(flag)] || slices.Contains(asked, flag) {
			merged = append(merged, flag)
		}
	}
	for _, flag := range asked {
		if !slices.Contains(merged, flag) {
			merged = append(merged, flag)
		}
	}
	return merged
}

func (g *Gateway) openhandsSession(w http.ResponseWriter, r *http.Request) error {
	session := r.PathValue("session_id")
	if r.URL.RawPath != "" { // then chi returns it encoded
		var err error
		if session, err = url.PathUnescape(session); err != nil {
			return refuse(http.StatusNotFound, "The session's name: %v", err)
		}
	}
	id := sandbox.ID(sessionKeyOf(session))
	answer := api.Runtime{RuntimeID: id, SessionID: session, URL: g.urlOf(r, id), WorkHosts: map[string]int{}, Status: "running", PodStatus: "pending"}
	if s := g.startOf(id); s != nil && !channel.Closed(s.done) {
		answer.SessionKey = s.secret
		return writeJSON(w, http.StatusOK, answer)
	}
	s, err := g.one(r.Context(), id)
	if err != nil {
		return err
	}
	switch s.State {
	case sandbox.Paused:
		answer.Status = "paused"
	case sandbox.Ready, sandbox.Busy, sandbox.Idle:
		answer.PodStatus = "ready"
	default: // half made by a controller that died, or ended by itself: to be started again
		answer.Status = "stopped"
	}
	if answer.SessionKey, err = s.Key(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, answer)
}

func (g *Gateway) openhandsRuntime(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("runtime_id")
	status, detail, err := g.podStatus(r.Context(), id)
	if err != nil {
		return err
	}
	return writeStatus(w, id, status, detail)
}

func writeStatus(w http.ResponseWriter, id, status, detail string) error {
	return writeJSON(w, http.StatusOK, api.RuntimeStatus{RuntimeID: id, PodStatus: status, RestartReasons: []string{}, Detail: detail})
}

// podStatus returns the state of a sandbox in OpenHands' terms. It is "ready" only if the
// server answers at this moment: clients then stop waiting.
func (g *Gateway) podStatus(ctx context.Context, id string) (status, detail string, err error) {
	begun := g.startOf(id)
	if begun != nil && !channel.Closed(begun.done) {
		return "pending", g.cfg.Phases.waiting(id), nil
	}
	s, err := g.one(ctx, id)
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		if begun != nil && begun.err != nil {
			return "failed", begun.err.Error(), nil //nolint:nilerr // it is the answer
		}
		return "not found", "", nil
	case err != nil:
		return "", "", err
	}
	switch s.State {
	case sandbox.Ready, sandbox.Busy, sandbox.Idle:
		if silent := g.answers(ctx, s); silent != nil {
			return "running", silent.Error(), nil //nolint:nilerr // it is the answer
		}
		return "ready", "", nil
	case sandbox.Stopped:
		detail = "it is stopped: " + s.Detail
		if begun != nil && begun.err != nil {
			detail = begun.err.Error()
		}
		return "failed", detail, nil
	case sandbox.Gone:
		return "not found", "", nil
	}
	return "pending", "it is " + string(s.State), nil
}

// aliveTime bounds the wait for a server that was ready before.
const aliveTime = 3 * time.Second

// answers asks the server of a sandbox whether it takes actions.
func (g *Gateway) answers(ctx context.Context, s *sandbox.Sandbox) error {
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
		return fmt.Errorf("its server answered %s", response.Status)
	}
	return nil
}

// openhandsStop removes a sandbox: clients stop a sandbox that they no longer need.
func (g *Gateway) openhandsStop(w http.ResponseWriter, r *http.Request) error {
	id, err := runtimeID(w, r)
	if err != nil {
		return err
	}
	if s := g.startOf(id); s != nil && !channel.Closed(s.done) {
		s.cancel(errors.New("its creation was cancelled by /stop"))
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
	if err != nil && !errors.Is(err, sandbox.ErrNotFound) {
		return err
	}
	return writeStatus(w, id, "not found", "")
}

func runtimeID(w http.ResponseWriter, r *http.Request) (string, error) {
	body, err := readBody(w, r)
	if err != nil {
		return "", err
	}
	return api.DecodeRuntimeID(body)
}

// openhandsPause freezes a sandbox. A stopped one stays stopped.
func (g *Gateway) openhandsPause(w http.ResponseWriter, r *http.Request) error {
	id, err := runtimeID(w, r)
	if err != nil {
		return err
	}
	if id == "" {
		return writeStatus(w, id, "not found", "")
	}
	s, err := g.one(r.Context(), id)
	if err != nil {
		return err
	}
	if s.State != sandbox.Stopped {
		if err := g.on(r.Context(), s, "paused", sandbox.Pause); err != nil {
			return err
		}
	}
	return writeStatus(w, id, "pending", "it is "+string(s.State))
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
	if s.State == sandbox.Stopped {
		begun, err := g.restart(r.Context(), s)
		if err != nil {
			return err
		}
		if status, err = begun.wait(r.Context()); err != nil {
			return err
		}
	} else if err := g.on(r.Context(), s, "resumed", sandbox.Resume); err != nil {
		return err
	}
	return writeStatus(w, id, status, "")
}

// restart starts a stopped sandbox in the background.
func (g *Gateway) restart(ctx context.Context, s *sandbox.Sandbox) (*start, error) {
	secret, err := s.Key()
	if err != nil {
		return nil, err
	}
	return g.begin(ctx, s.ID, secret, "resume", func(ctx context.Context) (*sandbox.Sandbox, error) {
		return s, g.on(ctx, s, "started", sandbox.Start)
	})
}

// resumeFor resumes an OpenHands sandbox before a request to it. RemoteRuntime
// answers a 503 with a call of /resume and then waits forever for the lock that its
// own action holds. So a request to a paused sandbox resumes it, and an
// action starts a stopped one; with other requests the client holds no lock.
// Sandboxes of other owners are not resumed.
func (g *Gateway) resumeFor(ctx context.Context, s *sandbox.Sandbox, path string) error {
	stopped := s.State == sandbox.Stopped && path == actionPath
	if s.Owner != openhandsOwner || s.State != sandbox.Paused && !stopped {
		return nil
	}
	s, err := g.one(ctx, s.ID)
	if err != nil {
		return err
	}
	switch s.State {
	case sandbox.Paused:
		return g.on(ctx, s, "resumed", sandbox.Resume)
	case sandbox.Stopped:
		begun, err := g.restart(ctx, s)
		if err != nil {
			return err
		}
		select {
		case <-begun.done:
			return begun.err
		case <-ctx.Done(): // the start goes on
			return fmt.Errorf("waiting for sandbox %s to start: %w", s.ID, context.Cause(ctx))
		}
	}
	g.known.put(s) // another request resumed it, and its event is on the way
	return nil
}

// actionPath is where a sandbox takes the actions of OpenHands.
const actionPath = "execute_action"
