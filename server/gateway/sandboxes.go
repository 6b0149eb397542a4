package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/server/reply"
)

// stopTime is what the processes of a sandbox get to end by themselves.
const stopTime = 10 * time.Second

func (g *Gateway) listSandboxes(w http.ResponseWriter, r *http.Request) error {
	all, err := g.cfg.Host.List(r.Context())
	if err != nil {
		return err
	}
	list := api.SandboxList{Sandboxes: []api.Sandbox{}}
	for _, s := range all {
		if s.Pool == "" {
			list.Sandboxes = append(list.Sandboxes, g.describe(r, s))
		}
	}
	return reply.Value(w, http.StatusOK, list)
}

// describe puts a sandbox into the words of the API, without its key.
func (g *Gateway) describe(r *http.Request, s *docker.Sandbox) api.Sandbox {
	d := api.Sandbox{
		ID: s.ID, Name: s.Name, Owner: s.Owner, Image: s.Image, State: string(s.State), Created: s.Created.UTC(),
		IdleSeconds: int(s.IdleLimit / time.Second), Labels: s.Labels, URL: g.urlOf(r, s.ID),
	}
	if !s.Deadline.IsZero() {
		deadline := s.Deadline.UTC().Truncate(time.Second)
		d.Deadline = &deadline
	}
	if d.Labels == nil {
		d.Labels = map[string]string{}
	}
	return d
}

// urlOf is where the paths of a sandbox begin, as the caller sees it.
func (g *Gateway) urlOf(r *http.Request, id string) string {
	base := g.cfg.PublicURL
	if base == "" {
		base = "http://" + r.Host
	}
	return base + proxyPrefix + id
}

// tell answers with a sandbox and its key.
func (g *Gateway) tell(w http.ResponseWriter, r *http.Request, status int, s *docker.Sandbox, warm bool) error {
	d := g.describe(r, s)
	key, err := s.Key()
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may just be removed
		return err
	}
	d.SessionKey, d.Warm = key, warm
	return reply.Value(w, status, d)
}

// maxIdempotencyKey bounds a header that is kept in memory.
const maxIdempotencyKey = 256

// onceKey begins the idempotency key of a sandbox whose creator gave none.
const onceKey = "gateway once "

// createSandbox makes a sandbox. Who leaves before it is there has it undone.
func (g *Gateway) createSandbox(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	asked, err := api.DecodeSandboxSpec(body)
	if err != nil {
		return err
	}
	spec := g.spec(asked)
	key := r.Header.Get(api.IdempotencyKeyHeader)
	if len(key) > maxIdempotencyKey {
		return refuse(http.StatusBadRequest, "The header %s must have at most %d bytes", api.IdempotencyKeyHeader, maxIdempotencyKey)
	}
	spec.Key = onceKey + randomHex(16)
	if key != "" {
		spec.Key = "gateway key " + key
	}
	made, err := g.create(r.Context(), spec)
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if made.known {
		status = http.StatusOK
	}
	return g.tell(w, r, status, made.sandbox, made.warm)
}

// spec is what the caller asks for, on top of the defaults.
func (g *Gateway) spec(a api.SandboxSpec) docker.Spec {
	s := g.cfg.Defaults
	s.Image, s.Name, s.Owner = orElse(a.Image, s.Image), orElse(a.Name, s.Name), orElse(a.Owner, s.Owner)
	if a.User != "" {
		s.User, s.UserID = a.User, 0
	}
	s.UserID = orElse(a.UserID, s.UserID)
	s.WorkDir, s.Network = orElse(a.WorkingDir, s.WorkDir), orElse(a.Network, s.Network)
	s.Memory, s.CPUs, s.Pids = orElse(a.Memory, s.Memory), orElse(a.CPUs, s.CPUs), orElse(a.Pids, s.Pids)
	s.TTL, s.Idle = orElse(a.TTL, s.TTL), orElse(a.Idle, s.Idle)
	s.Pull = orElse(docker.Pull(a.Pull), s.Pull)
	s.ReadOnly = s.ReadOnly || a.ReadOnly
	s.Env, s.Labels = merged(s.Env, a.Env), merged(s.Labels, a.Labels)
	return s
}

func merged(base, over map[string]string) map[string]string {
	if len(base)+len(over) == 0 {
		return nil
	}
	all := map[string]string{}
	maps.Copy(all, base)
	maps.Copy(all, over)
	return all
}

func orElse[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

// creation is what came of one.
type creation struct {
	sandbox *docker.Sandbox
	known   bool // it was there already
	warm    bool // it came from the pool
}

// create makes the sandbox of a specification, which has a key, or takes one
// from the pool.
func (g *Gateway) create(ctx context.Context, spec docker.Spec) (c creation, err error) {
	begun := time.Now()
	defer func() { g.metrics.created(ctx, c, err, time.Since(begun)) }()
	if g.stopping.Load() {
		return c, errStopping
	}
	id := docker.ID(spec.Key)
	if g.cfg.MaxSandboxes > 0 || !strings.HasPrefix(spec.Key, onceKey) { // otherwise there is nothing to ask the engine
		known, release, err := g.admit(ctx, id)
		if err != nil {
			return c, err
		}
		defer release()
		c.known = known
	}
	if g.cfg.Pool != nil {
		c.sandbox, c.warm, err = g.cfg.Pool.Claim(ctx, spec)
	} else {
		c.sandbox, err = g.cfg.Host.Create(ctx, spec)
	}
	g.cfg.Phases.end(id)
	if err != nil {
		return c, err
	}
	g.known.put(c.sandbox)
	return c, nil
}

// admit refuses a creation where the host has as many sandboxes as it may, and
// tells whether the one in question is there already. Whoever was admitted
// counts until release.
func (g *Gateway) admit(ctx context.Context, id string) (known bool, release func(), err error) {
	select {
	case g.admission <- struct{}{}:
	case <-ctx.Done():
		return false, nil, fmt.Errorf("waiting to be admitted: %w", context.Cause(ctx))
	}
	defer func() { <-g.admission }()
	all, err := g.cfg.Host.List(ctx)
	if err != nil {
		return false, nil, err
	}
	count := map[string]bool{}
	for _, s := range all {
		if s.Pool == "" {
			count[s.ID] = true
		}
	}
	known = count[id] && g.making[id] == 0
	for other := range g.making {
		count[other] = true
	}
	if most := g.cfg.MaxSandboxes; most > 0 && !count[id] && len(count) >= most {
		return false, nil, api.TooMany(fmt.Sprintf("This host has %d sandboxes and may have no more than %d: remove one, or wait for the end of one", len(count), most))
	}
	g.making[id]++
	return known, func() {
		// Not while somebody counts: it would be in neither of their two lists.
		g.admission <- struct{}{}
		defer func() { <-g.admission }()
		if g.making[id]--; g.making[id] == 0 {
			delete(g.making, id)
		}
	}, nil
}

// one gives a copy of the sandbox in the path, as the engine sees it now.
func (g *Gateway) one(ctx context.Context, id string) (*docker.Sandbox, error) {
	if !idPattern.MatchString(id) {
		return nil, errNoSandbox(id)
	}
	s, err := g.cfg.Host.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.ID != id || s.Pool != "" { // a name that looks like an id, or nobody's
		return nil, errNoSandbox(id)
	}
	return s, nil
}

func (g *Gateway) getSandbox(w http.ResponseWriter, r *http.Request) error {
	s, err := g.one(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return g.tell(w, r, http.StatusOK, s, false)
}

func (g *Gateway) deleteSandbox(w http.ResponseWriter, r *http.Request) error {
	s, err := g.one(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := g.remove(r.Context(), s); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (g *Gateway) remove(ctx context.Context, s *docker.Sandbox) error {
	if err := g.cfg.Host.Delete(ctx, s); err != nil {
		return err
	}
	g.known.forget(s.ID)
	return nil
}

func (g *Gateway) renewSandbox(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	renewal, err := api.DecodeRenewal(body)
	if err != nil {
		return err
	}
	return g.onOne(w, r, func(ctx context.Context, s *docker.Sandbox) error {
		deadline := time.Time{}
		if renewal.TTLSeconds > 0 {
			deadline = time.Now().Add(time.Duration(renewal.TTLSeconds) * time.Second)
		}
		return g.cfg.Host.Renew(ctx, s, deadline)
	})
}

func (g *Gateway) stopSandbox(w http.ResponseWriter, r *http.Request) error {
	return g.onOne(w, r, func(ctx context.Context, s *docker.Sandbox) error { return g.cfg.Host.Stop(ctx, s, stopTime) })
}

func (g *Gateway) startSandbox(w http.ResponseWriter, r *http.Request) error {
	return g.onOne(w, r, g.cfg.Host.Start)
}

func (g *Gateway) pauseSandbox(w http.ResponseWriter, r *http.Request) error {
	return g.onOne(w, r, g.cfg.Host.Pause)
}

func (g *Gateway) resumeSandbox(w http.ResponseWriter, r *http.Request) error {
	return g.onOne(w, r, g.cfg.Host.Resume)
}

// onOne does work on the sandbox in the path and answers with it.
func (g *Gateway) onOne(w http.ResponseWriter, r *http.Request, work func(context.Context, *docker.Sandbox) error) error {
	s, err := g.one(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if err := g.on(r.Context(), s, work); err != nil {
		return err
	}
	return g.tell(w, r, http.StatusOK, s, false)
}

// on does work on a sandbox and notes what it is like afterwards.
func (g *Gateway) on(ctx context.Context, s *docker.Sandbox, work func(context.Context, *docker.Sandbox) error) error {
	err := work(ctx, s)
	if err != nil {
		g.known.changed(s.ID)
		return err
	}
	noted := *s
	g.known.put(&noted)
	return nil
}
