package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/coder/websocket"

	"github.com/actiond/actiond/api"
)

// maxTyped bounds the bytes in one message: a quarter of a server's limit.
const maxTyped = 16 << 10

// Terminal is a view of a session's terminal. Read may be called by one
// goroutine and Write by another; the rest by any.
type Terminal struct {
	conn *websocket.Conn
	net  net.Conn
	ctx  context.Context //nolint:containedctx // a net.Conn has none in its methods; Terminal says what it bounds
	end  context.CancelCauseFunc
}

// Terminal attaches to the terminal of a session, "" for the default one, and starts the
// session if it does not exist. With readOnly the server ignores input. The first bytes are
// earlier output. ctx bounds the whole attachment; processes in the session survive its end.
// A refusal is a *StatusError. The caller must call Close.
func (c *Client) Terminal(ctx context.Context, session string, readOnly bool) (*Terminal, error) {
	return c.NamedTerminal(ctx, session, "", readOnly)
}

// NamedTerminal is Terminal with a name for the sandbox that its prompts show.
func (c *Client) NamedTerminal(ctx context.Context, session, sandbox string, readOnly bool) (*Terminal, error) {
	query := url.Values{}
	if readOnly {
		query.Set("mode", "read")
	}
	if sandbox != "" {
		query.Set("sandbox", sandbox)
	}
	path := sessionPath(session) + "/terminal?" + query.Encode()
	dialing, cancel := context.WithCancelCause(ctx)
	conn, err := c.webSocket(dialing, cancel, path)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return &Terminal{conn: conn, net: websocket.NetConn(ctx, conn, websocket.MessageBinary), ctx: ctx, end: cancel}, nil
}

// webSocket opens a WebSocket, whose life ctx bounds. It calls cancel, which ends ctx, if
// the server does not answer. A refusal is a *StatusError.
func (c *Client) webSocket(ctx context.Context, cancel context.CancelCauseFunc, path string) (*websocket.Conn, error) {
	header := http.Header{}
	if c.key != "" {
		header.Set(api.KeyHeader, c.key)
	}
	slow := time.AfterFunc(c.limits.quick, func() { cancel(ErrNoAnswer) })
	defer slow.Stop()
	//nolint:bodyclose // Dial keeps the start of a refusal and closes the rest
	conn, response, err := websocket.Dial(ctx, c.base+path,
		&websocket.DialOptions{HTTPClient: c.oneHTTP(), HTTPHeader: header})
	switch {
	case err == nil:
		return conn, nil
	case response == nil || response.StatusCode == http.StatusSwitchingProtocols:
		return nil, fmt.Errorf("calling %s: %w", pathOnly(path), causeOf(ctx, err))
	}
	data, _ := io.ReadAll(response.Body) // bounded by Dial
	return nil, refusal(response.StatusCode, data)
}

// oneHTTP returns a client whose connections use HTTP/1.1, which a WebSocket requires.
func (c *Client) oneHTTP() *http.Client {
	one := *c.http
	if transport, ok := one.Transport.(*http.Transport); ok {
		transport = transport.Clone()
		transport.ForceAttemptHTTP2 = false
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetHTTP1(true)
		one.Transport = transport
	}
	return &one
}

// Read reads the output of the terminal with its escape sequences, and a prompt while
// nothing runs. It returns io.EOF when the user left the session (by typing "exit" or C-d at
// the prompt) or the session was closed, and a *StatusError of 400 with the server's reason if
// the server rejected a message.
func (t *Terminal) Read(p []byte) (int, error) {
	n, err := t.net.Read(p)
	closed, ok := errors.AsType[websocket.CloseError](err)
	switch {
	case ok && closed.Code == websocket.StatusPolicyViolation:
		return n, &StatusError{Status: http.StatusBadRequest, Detail: closed.Reason}
	case err != nil && !errors.Is(err, io.EOF):
		return n, fmt.Errorf("reading the terminal: %w", err)
	}
	return n, err
}

// Write types p, as a keyboard sends it.
func (t *Terminal) Write(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		n, err := t.net.Write(p[written:min(len(p), written+maxTyped)])
		written += n
		if err != nil {
			return written, fmt.Errorf("typing into the terminal: %w", err)
		}
	}
	return written, nil
}

// Resize sets the size of the session's terminal, until Close, or until another attached
// client that types sets it.
func (t *Terminal) Resize(rows, cols int) error {
	size, err := api.Encode(api.TerminalSize{Rows: rows, Cols: cols})
	if err != nil {
		return fmt.Errorf("resizing the terminal: %w", err)
	}
	if err := t.conn.Write(t.ctx, websocket.MessageText, size); err != nil {
		return fmt.Errorf("resizing the terminal: %w", err)
	}
	return nil
}

// Close detaches. Processes in the session keep running.
func (t *Terminal) Close() error {
	defer t.end(nil)
	if err := t.net.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return t.conn.CloseNow()
	}
	return nil
}
