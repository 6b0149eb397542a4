package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/sandbox"
)

// stopTime is how long the processes of a sandbox may take to end by themselves.
const stopTime = 10 * time.Second

// describe returns the API's form of a sandbox, without its key.
func (g *Gateway) describe(r *http.Request, s *sandbox.Sandbox) api.Sandbox {
	d := api.Sandbox{
		ID: s.ID, Name: s.Name, Owner: s.Owner, Image: s.Image, State: string(s.State), Created: s.Created.UTC(),
		IdleLimitSeconds: sandbox.WholeSeconds(s.IdleLimit), GPUs: s.GPUs.String(), Labels: s.Labels, URL: g.urlOf(r, s.ID),
	}
	d.User, _, _ = strings.Cut(s.User, ":")
	if !s.Deadline.IsZero() {
		deadline := s.Deadline.UTC().Truncate(time.Second)
		d.Deadline = &deadline
	}
	if d.Labels == nil {
		d.Labels = map[string]string{}
	}
	return d
}

// urlOf returns the URL prefix of a sandbox's paths, as the caller sees it.
func (g *Gateway) urlOf(r *http.Request, id string) string {
	base := g.cfg.PublicURL
	if base == "" {
		base = "http://" + r.Host
	}
	return base + proxyPrefix + id
}

// writeSandbox answers with a sandbox and its key.
func (g *Gateway) writeSandbox(w http.ResponseWriter, r *http.Request, status int, s *sandbox.Sandbox, warm bool) error {
	d := g.describe(r, s)
	key, err := s.Key()
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have been removed just now
		return err
	}
	d.SessionKey, d.Warm = key, warm
	return writeJSON(w, status, d)
}

// maxIdempotencyKey limits the length of a header that is kept in memory.
const maxIdempotencyKey = 256

// onceKey is the prefix of the idempotency keys that the gateway makes.
const onceKey = "gateway once "

// createSandbox creates a sandbox. If the client disconnects first, the creation is
// rolled back.
func (g *Gateway) createSandbox(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r)
	if err != nil {
		return err
	}
	asked, err := api.DecodeSandboxSpec(body)
	if err != nil {
		return err
	}
	spec, err := g.spec(asked)
	if err != nil {
		return err
	}
	key := r.Header.Get(api.IdempotencyKeyHeader)
	if len(key) > maxIdempotencyKey {
		return refuse(http.StatusBadRequest, "The header %s must have at most %d bytes", api.IdempotencyKeyHeader, maxIdempotencyKey)
	}
	spec.Key = onceKey + random.Hex(16)
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
	return g.writeSandbox(w, r, status, made.sandbox, made.warm)
}

// spec returns the specification of a request, on top of the defaults.
func (g *Gateway) spec(a api.SandboxSpec) (sandbox.Spec, error) {
	s := g.cfg.Defaults
	s.Image, s.Name, s.Owner = cmp.Or(a.Image, s.Image), cmp.Or(a.Name, s.Name), cmp.Or(a.Owner, s.Owner)
	if a.User != "" {
		s.User, s.UserID = a.User, 0
	}
	s.UserID = cmp.Or(a.UserID, s.UserID)
	s.WorkDir, s.Network = cmp.Or(a.WorkingDir, s.WorkDir), cmp.Or(a.Network.Name, s.Network)
	switch {
	case a.Network.Name == "none": // less than any policy
		s.Policy = nil
	case a.Network.Policy != nil:
		policy, err := g.policyOf(a.Network.Policy)
		if err != nil {
			return s, err
		}
		s.Policy, s.Network = policy, ""
	}
	if s.Policy == nil {
		s.Private, s.NoNames = nil, false
	}
	s.Disk = cmp.Or(a.Disk, s.Disk)
	s.Memory, s.CPUs, s.Pids = cmp.Or(a.Memory, s.Memory), cmp.Or(a.CPUs, s.CPUs), cmp.Or(a.Pids, s.Pids)
	second := func(n int) time.Duration { return time.Duration(n) * time.Second }
	s.TTL, s.Idle = cmp.Or(second(a.TTLSeconds), s.TTL), cmp.Or(second(a.IdleLimitSeconds), s.Idle)
	s.Pull = cmp.Or(sandbox.Pull(a.Pull), s.Pull)
	s.ReadOnly = s.ReadOnly || a.ReadOnly
	if labeler, ok := g.cfg.Driver.(sandbox.Labeler); ok {
		if err := labeler.CheckLabels(a.Labels); err != nil {
			return s, err
		}
	}
	gpus, err := g.gpusOf(a.GPUs)
	if err != nil {
		return s, err
	}
	s.GPUs = gpus
	s.Env, s.Labels = merged(s.Env, a.Env), merged(s.Labels, a.Labels)
	return s, nil
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

// creation is the result of a creation.
type creation struct {
	sandbox *sandbox.Sandbox
	known   bool // it existed before
	warm    bool // it came from the pool
}

// create creates the sandbox of a specification, which has a key, or takes one
// from the pool.
func (g *Gateway) create(ctx context.Context, spec sandbox.Spec) (c creation, err error) {
	begun := time.Now()
	defer func() {
		g.metrics.created(ctx, c, err, time.Since(begun))
		g.logCreation(ctx, spec, c, err, time.Since(begun))
	}()
	if g.stopping.Load() {
		return c, errStopping
	}
	done, err := g.made.begin()
	if err != nil {
		return c, err
	}
	defer done()
	id := sandbox.ID(spec.Key)
	if g.cfg.MaxSandboxes > 0 || spec.GPUs.Count > 0 || !strings.HasPrefix(spec.Key, onceKey) { // otherwise there is nothing to ask the engine
		known, release, err := g.admit(ctx, id, spec.GPUs)
		if err != nil {
			return c, err
		}
		defer release()
		c.known = known
	}
	if g.cfg.Pool != nil {
		c.sandbox, c.warm, err = g.cfg.Pool.Claim(ctx, spec)
	} else {
		c.sandbox, err = g.cfg.Driver.Create(ctx, spec)
	}
	g.cfg.Phases.end(id)
	if err != nil {
		return c, err
	}
	g.known.put(c.sandbox)
	if !c.known {
		g.made.put(c.sandbox)
	}
	return c, nil
}

// logCreation logs the result of a request for a sandbox.
func (g *Gateway) logCreation(ctx context.Context, spec sandbox.Spec, c creation, err error, took time.Duration) {
	id, image := slog.String("sandbox", sandbox.ID(spec.Key)), slog.String("image", spec.Image)
	duration := slog.Duration("took", took.Round(time.Millisecond))
	switch {
	case err != nil:
		g.log.WarnContext(ctx, "did not make a sandbox", id, image, duration, slog.Any("error", err))
	case c.known: // nothing was done
	case c.warm:
		g.log.InfoContext(ctx, "claimed a warm sandbox", id, slog.String("name", c.sandbox.Name), image, duration)
	default:
		g.log.InfoContext(ctx, "made a sandbox", id, slog.String("name", c.sandbox.Name), image, duration)
	}
}

// admit refuses a creation beyond MaxSandboxes or GPUs, and reports whether the sandbox exists
// already. An admitted creation counts until release.
func (g *Gateway) admit(ctx context.Context, id string, gpus sandbox.GPUs) (known bool, release func(), err error) {
	select {
	case g.admission <- struct{}{}:
	case <-ctx.Done():
		return false, nil, fmt.Errorf("waiting to be admitted: %w", context.Cause(ctx))
	}
	defer func() { <-g.admission }()
	all, err := g.cfg.Driver.List(ctx)
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
		return false, nil, api.TooMany(fmt.Sprintf("This host has %d sandboxes and may have no more than %d: remove one, or wait until one ends", len(count), most))
	}
	if err := g.admitGPUs(id, gpus, all); err != nil {
		return false, nil, err
	}
	g.making[id]++
	if gpus.Count > 0 {
		g.makingGPUs[id] = gpus.Count
	}
	return known, func() {
		// Not during a count: the sandbox would be in neither of its two lists.
		g.admission <- struct{}{}
		defer func() { <-g.admission }()
		if g.making[id]--; g.making[id] == 0 {
			delete(g.making, id)
			delete(g.makingGPUs, id)
		}
	}, nil
}

// one returns the sandbox of an id or a name, in its current state on the platform.
func (g *Gateway) one(ctx context.Context, ref string) (*sandbox.Sandbox, error) {
	if !sandbox.IsName(ref) {
		return nil, errNoSandbox(ref)
	}
	s, err := g.cfg.Driver.Get(ctx, ref)
	if err != nil {
		return nil, err
	}
	named := s.Name == ref && !sandbox.IsID(ref)
	if s.ID != ref && !named || s.Pool != "" { // the beginning of an id, a name that looks like one, or not claimed
		return nil, errNoSandbox(ref)
	}
	return s, nil
}

// asked is one for the path of a request, and says of a sandbox that ended why.
func (g *Gateway) asked(r *http.Request) (*sandbox.Sandbox, error) {
	ref := r.PathValue("id")
	s, err := g.one(r.Context(), ref)
	if !errors.Is(err, sandbox.ErrNotFound) {
		return s, err
	}
	if known, _, _ := g.known.known(ref); known != nil {
		g.known.changed(known.current().ID)
		_, _ = g.known.find(r.Context(), ref, true) // notices the end
	}
	if ended := g.known.ended(ref, true, nil); ended != nil {
		return nil, ended
	}
	return nil, err
}

func (g *Gateway) getSandbox(w http.ResponseWriter, r *http.Request) error {
	s, err := g.asked(r)
	if err != nil {
		return err
	}
	return g.writeSandbox(w, r, http.StatusOK, s, false)
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

func (g *Gateway) remove(ctx context.Context, s *sandbox.Sandbox) error {
	g.known.note(s.ID, sandbox.EndRemoved)
	if err := g.cfg.Driver.Delete(ctx, s); err != nil {
		g.known.note(s.ID, "")
		return err
	}
	g.known.forget(s.ID)
	g.made.forget(s.ID)
	g.log.InfoContext(ctx, "removed a sandbox", slog.String("sandbox", s.ID), slog.String("name", s.Name), slog.String("reason", "a client asked for it"))
	return nil
}

func (g *Gateway) renewSandbox(w http.ResponseWriter, r *http.Request) error {
	ttl, err := readRenewal(w, r)
	if err != nil {
		return err
	}
	return g.onOne(w, r, "renewed", renewal(ttl))
}

func readRenewal(w http.ResponseWriter, r *http.Request) (ttl time.Duration, err error) {
	body, err := readJSON(w, r)
	if err != nil {
		return 0, err
	}
	asked, err := api.DecodeRenewal(body)
	return time.Duration(asked.TTLSeconds) * time.Second, err
}

// renewal returns the work of giving a sandbox a deadline, ttl from now; 0 means none.
func renewal(ttl time.Duration) work {
	return func(ctx context.Context, d sandbox.Driver, s *sandbox.Sandbox) error {
		deadline := time.Time{}
		if ttl > 0 {
			deadline = time.Now().Add(ttl)
		}
		return sandbox.Renew(ctx, d, s, deadline)
	}
}

// renewServer answers a renewal on the path of a sandbox's own server, as that would, by the driver, which keeps
// the deadline. A session key renews within the operator's limit.
func (g *Gateway) renewServer(w http.ResponseWriter, r *http.Request, d *destination, operator bool) error {
	if err := g.takesRequests(r, d.to); err != nil {
		return err
	}
	if err := api.CheckQuery(http.MethodPost, "/v1/renew", r.URL.RawQuery); err != nil {
		return err
	}
	ttl, err := readRenewal(w, r)
	if err != nil {
		return err
	}
	if limit := g.cfg.Defaults.TTL; limit > 0 && !operator && (ttl == 0 || ttl > limit) {
		return refuse(http.StatusForbidden, "ttl_seconds: a session key renews its sandbox for at most %d seconds, the --ttl of the gateway; send the gateway's key for more", sandbox.WholeSeconds(limit))
	}
	s, err := g.one(r.Context(), d.to.current().ID)
	if err != nil {
		return err
	}
	if err := g.on(r.Context(), s, "renewed", renewal(ttl)); err != nil {
		return err
	}
	status := r.Clone(r.Context())
	status.Method, status.Body, status.ContentLength = http.MethodGet, http.NoBody, 0
	status.Header.Del("Content-Type")
	d.path = "/v1/status"
	return g.forward(w, status, g.proxy, d)
}

func (g *Gateway) stopSandbox(w http.ResponseWriter, r *http.Request) error {
	return g.onOne(w, r, "stopped", func(ctx context.Context, d sandbox.Driver, s *sandbox.Sandbox) error {
		return sandbox.Stop(ctx, d, s, stopTime)
	})
}

func (g *Gateway) startSandbox(w http.ResponseWriter, r *http.Request) error {
	return g.onOne(w, r, "started", sandbox.Start)
}

func (g *Gateway) pauseSandbox(w http.ResponseWriter, r *http.Request) error {
	return g.onOne(w, r, "paused", sandbox.Pause)
}

func (g *Gateway) resumeSandbox(w http.ResponseWriter, r *http.Request) error {
	return g.onOne(w, r, "resumed", sandbox.Resume)
}

// work changes a sandbox, as [sandbox.Start] does.
type work func(ctx context.Context, d sandbox.Driver, s *sandbox.Sandbox) error

// onOne does work on the sandbox in the path and answers with it.
func (g *Gateway) onOne(w http.ResponseWriter, r *http.Request, done string, do work) error {
	s, err := g.asked(r)
	if err != nil {
		return err
	}
	if err := g.on(r.Context(), s, done, do); err != nil {
		return err
	}
	return g.writeSandbox(w, r, http.StatusOK, s, false)
}

// on does work on a sandbox, logs it as done, and updates the directory.
func (g *Gateway) on(ctx context.Context, s *sandbox.Sandbox, done string, do work) error {
	err := do(ctx, g.cfg.Driver, s)
	if err != nil {
		g.known.changed(s.ID)
		return err
	}
	g.log.InfoContext(ctx, "changed a sandbox", slog.String("sandbox", s.ID), slog.String("name", s.Name), slog.String("what", done))
	noted := *s
	g.known.put(&noted)
	return nil
}
