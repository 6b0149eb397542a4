package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/sandbox"
)

// maxEnds is how many ends the gateway remembers.
const maxEnds = 1000

// end is the end of a sandbox that the directory had.
type end struct {
	id, name, reason string
	key              [sha256.Size]byte // hash of the session key; zero: not known
}

// endTexts are the reasons in words.
var endTexts = map[string]string{
	sandbox.EndDeadline: "its time was up", sandbox.EndIdle: "it was idle for longer than its limit", sandbox.EndMemory: "its server ran out of memory",
	sandbox.EndKilled: "its server was killed", sandbox.EndFailed: "its server failed", sandbox.EndRemoved: "it was removed", sandbox.EndStopped: "it was stopped",
}

func errEnded(id, reason string) *api.Error {
	return &api.Error{
		Status: http.StatusGone, Code: "ended", Reason: reason,
		Detail: fmt.Sprintf("Sandbox %s ended: %s. Create another one", id, endTexts[reason]),
	}
}

// drop removes an entry and remembers its end; reason is "" where the last snapshot has to say it. d.mu
// is held.
func (d *directory) drop(e *entry, reason string) {
	e.closeIdle()
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.sandbox
	delete(d.entries, s.ID)
	switch {
	case reason != "":
	case s.Overdue(time.Now()) != "":
		reason = sandbox.EndDeadline
	case e.end != "" && e.end != sandbox.EndStopped:
		reason = e.end
	case e.end == "" && s.State == sandbox.Stopped && s.IdleLimit > 0:
		reason = sandbox.EndIdle
	default:
		reason = sandbox.EndRemoved
	}
	ended := end{id: s.ID, name: s.Name, reason: reason}
	if e.key != "" {
		ended.key = sha256.Sum256([]byte(e.key))
	}
	if len(d.ends) == maxEnds {
		d.ends = slices.Delete(d.ends, 0, 1)
	}
	d.ends = append(d.ends, ended)
}

// ended returns the refusal for a sandbox that ended, or nil, for a client with its session key, or for
// the operator with no session key: others do not learn of it.
func (d *directory) ended(ref string, operator bool, sessions []string) *api.Error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range slices.Backward(d.ends) {
		if e.id != ref && (e.name != ref || sandbox.IsID(ref)) {
			continue
		}
		if operator && len(sessions) == 0 || len(sessions) == 1 && sameKey(sessions[0], e.key) {
			return errEnded(e.id, e.reason)
		}
	}
	return nil
}

// note records why a sandbox ends, before it does; "" takes it back.
func (d *directory) note(id, reason string) {
	d.mu.Lock()
	e := d.entries[id]
	d.mu.Unlock()
	if e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.end = reason
	}
}

// why returns why a sandbox ended that is stopped or gone; "" if its platform does not know. The platform is
// asked once.
func (e *entry) why(ctx context.Context, driver sandbox.Driver) string {
	e.mu.Lock()
	s, reason := e.sandbox, e.end
	e.mu.Unlock()
	if s.Overdue(time.Now()) != "" {
		return sandbox.EndDeadline
	}
	inspector, ok := driver.(sandbox.Inspector)
	if reason != "" || !ok {
		return reason
	}
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	details, err := inspector.Inspect(ctx, s)
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		return sandbox.EndRemoved
	case err != nil:
		return ""
	}
	reason = details.End(s, time.Now())
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sandbox == s {
		e.end = reason
	}
	return reason
}

// over refuses a request to a sandbox that is stopped or gone.
func (g *Gateway) over(r *http.Request, to *entry) error {
	s := to.current()
	reason := ""
	if native(r) {
		reason = to.why(r.Context(), g.cfg.Driver)
	}
	switch {
	case reason == sandbox.EndDeadline, reason == sandbox.EndRemoved, reason != "" && s.State == sandbox.Gone:
		return errEnded(s.ID, reason)
	case s.State == sandbox.Gone:
		return errNoSandbox(s.ID)
	}
	refusal := unavailable("stopped", "Sandbox %s is stopped; start it", s.ID)
	refusal.Reason = reason
	return refusal
}

// native reports whether a request is outside of the legacy protocol, whose statuses and bodies stay as
// OpenHands' clients know them.
func native(r *http.Request) bool {
	path := r.URL.Path
	if d := destinationOf(r.Context()); d != nil {
		path = d.path
		if d.port != 0 {
			return true
		}
	} else if rest, ok := strings.CutPrefix(path, proxyPrefix); ok {
		_, rest, _ = strings.Cut(rest, "/")
		path = "/" + rest
	}
	return r.Pattern == previewPattern || strings.HasPrefix(path, "/v1/") || strings.HasPrefix(path, "/"+portsPath) || path == "/mcp"
}
