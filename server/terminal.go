package server

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/shorten"
)

const (
	// maxTerminals leaves most of the connections to actions.
	maxTerminals = 256
	// maxTyped bounds one message of a terminal's client.
	maxTyped = 64 << 10
	// maxSandboxName bounds the name that prompts show.
	maxSandboxName = 64
	// maxShown bounds one message to it.
	maxShown = 32 << 10
	// maxReason is the size of the reason in a closing frame (RFC 6455, section 5.5).
	maxReason = 123
)

// terminal connects a WebSocket to the terminal of a session.
func (s *Server) terminal(w http.ResponseWriter, r *http.Request) error {
	name, err := sessionName(r)
	if err != nil {
		return err
	}
	types, err := terminalMode(r)
	if err != nil {
		return err
	}
	sandbox := r.URL.Query().Get("sandbox")
	if len(sandbox) > maxSandboxName {
		return refuse(http.StatusBadRequest, "sandbox must have at most %d bytes", maxSandboxName)
	}
	if err := upgrade(w, r); err != nil {
		return err
	}
	s.attached.RLock()
	defer s.attached.RUnlock()
	if s.draining.Load() {
		return refuse(http.StatusTooManyRequests, "The server is shutting down")
	}
	select {
	case s.terminals <- struct{}{}:
		defer func() { <-s.terminals }()
	default:
		return refuse(http.StatusTooManyRequests, "%d terminals are attached already; detach one first", maxTerminals)
	}
	if types { // one who only looks keeps no sandbox alive
		s.life.begin()
		defer s.life.end()
	}
	t, err := s.cfg.Attach(r.Context(), name, types)
	if err != nil {
		return err
	}
	defer t.Close()
	if named, ok := t.(interface{ SetName(name string) }); ok {
		named.SetName(sandbox)
	}
	// The origin and the rest of the request were checked.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return err
	}
	s.converse(r.Context(), conn, t)
	return nil
}

// terminalMode reports whether the client of a terminal wants to type.
func terminalMode(r *http.Request) (types bool, err error) {
	switch mode := r.URL.Query().Get("mode"); mode {
	case "", "type":
		return true, nil
	case "read":
		return false, nil
	default:
		return false, refuse(http.StatusBadRequest, `mode must be "type" or "read", got %q`, mode)
	}
}

// upgrade refuses a request that does not ask for a WebSocket, or comes from a foreign
// page: browsers let any page open one.
func upgrade(w http.ResponseWriter, r *http.Request) error {
	h := r.Header
	if !has(h.Values("Connection"), "upgrade") || !has(h.Values("Upgrade"), "websocket") || !r.ProtoAtLeast(1, 1) {
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", "websocket")
		return refuse(http.StatusUpgradeRequired,
			"This path is a WebSocket: send the request with a client that asks for one")
	}
	if key, err := base64.StdEncoding.DecodeString(h.Get("Sec-WebSocket-Key")); h.Get("Sec-WebSocket-Version") != "13" || err != nil || len(key) != 16 {
		w.Header().Set("Sec-WebSocket-Version", "13")
		return refuse(http.StatusBadRequest, "The WebSocket must have version 13 and a key of 16 bytes in base64")
	}
	for _, origin := range h.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return refuse(http.StatusForbidden, "This request comes from a web page of another origin; send it without a browser")
		}
	}
	return nil
}

// has reports whether a list of a header holds a token.
func has(values []string, token string) bool {
	for part := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if strings.EqualFold(strings.TrimSpace(part), token) {
			return true
		}
	}
	return false
}

// converse shows a terminal and types into it until one side ends it.
func (s *Server) converse(ctx context.Context, conn *websocket.Conn, t Terminal) {
	ctx, hangUp := context.WithCancelCause(ctx)
	var others sync.WaitGroup
	defer others.Wait()
	defer hangUp(nil)
	defer s.onHangUp(hangUp)()
	var typing atomic.Uint64
	others.Go(func() { hangUp(listen(ctx, conn, t, &typing)) })
	others.Go(func() { hangUp(s.feelPulse(ctx, conn, &typing)) })
	err := show(ctx, conn, t)
	code, reason := farewell(ctx, err)
	cut := time.AfterFunc(answerTime, func() { _ = conn.CloseNow() })
	defer cut.Stop()
	_ = conn.Close(code, reason) // a client that is gone already needs no farewell
}

// show sends the output of a terminal. A client that does not read falls behind in
// the session's log; the bound on writes ends it.
func show(ctx context.Context, conn *websocket.Conn, t Terminal) error {
	buf := make([]byte, maxShown)
	for {
		n, err := t.Read(ctx, buf)
		if err != nil {
			return err
		}
		if err := conn.Write(ctx, websocket.MessageBinary, buf[:n]); err != nil {
			return err
		}
	}
}

// errClientLeft says that the client of a terminal closed it.
var errClientLeft = errors.New("the client left")

// feelPulse pings the client until ctx ends, and returns when it is gone: a
// connection can break without a word, and one that types keeps the sandbox
// alive. typing is odd while keys are not taken; pongs wait behind them.
func (s *Server) feelPulse(ctx context.Context, conn *websocket.Conn, typing *atomic.Uint64) error {
	timer := time.NewTimer(s.heartbeat)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		before := typing.Load()
		ping, cancel := context.WithTimeout(ctx, httpserver.StallTime)
		err := conn.Ping(ping)
		unanswered := ping.Err() != nil
		cancel()
		switch {
		case err == nil || ctx.Err() != nil:
		case !errors.Is(err, context.DeadlineExceeded):
			return errClientLeft
		case unanswered && before%2 == 0 && before == typing.Load():
			return errClientLeft
		}
		timer.Reset(s.heartbeat)
	}
}

// listen takes the client's messages: bytes are typed, texts ask for a size.
func listen(ctx context.Context, conn *websocket.Conn, t Terminal, typing *atomic.Uint64) error {
	conn.SetReadLimit(maxTyped)
	for {
		// The end of ctx would cut the connection before a farewell.
		kind, data, err := conn.Read(context.WithoutCancel(ctx))
		if err != nil {
			return errClientLeft
		}
		if kind == websocket.MessageBinary {
			typing.Add(1)
			err := t.Type(ctx, data)
			typing.Add(1)
			if err != nil {
				return &api.Error{Detail: err.Error()}
			}
			continue
		}
		size, err := api.DecodeTerminalSize(data)
		if err != nil {
			return &api.Error{Detail: err.Error()}
		}
		t.Resize(size.Rows, size.Cols)
	}
}

// farewell says why a terminal ends.
func farewell(ctx context.Context, err error) (websocket.StatusCode, string) {
	refusal, refused := errors.AsType[*api.Error](context.Cause(ctx))
	switch {
	case refused:
		return websocket.StatusPolicyViolation, shorten.Bytes(refusal.Detail, maxReason)
	case errors.Is(context.Cause(ctx), errStopping):
		return websocket.StatusGoingAway, "the server is shutting down"
	case errors.Is(err, io.EOF):
		return websocket.StatusNormalClosure, "the session was left or closed"
	}
	return websocket.StatusNormalClosure, ""
}

// onHangUp gives up once the server ends, until stop.
func (s *Server) onHangUp(giveUp context.CancelCauseFunc) (stop func()) {
	return channel.Go(func(over <-chan struct{}) {
		select {
		case <-s.hungUp:
			giveUp(errStopping)
		case <-over:
		}
	})
}
