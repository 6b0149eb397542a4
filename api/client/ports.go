package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/actiond/actiond/api"
)

// Ports returns the TCP ports that processes of the sandbox listen on, by number.
func (c *Client) Ports(ctx context.Context) ([]api.Port, error) {
	var list api.PortList
	err := c.get(ctx, "/v1/ports", &list, maxInfo)
	return list.Ports, err
}

// Tunnel is a connection to a port of a sandbox. It is a [net.Conn], and CloseWrite
// ends its sending direction. A read or a write whose deadline passes breaks it.
// Its methods may be called concurrently.
type Tunnel struct {
	ws    *websocket.Conn
	life  context.Context //nolint:containedctx // a net.Conn has none in its methods; Close ends it
	end   context.CancelCauseFunc
	port  address
	reads deadline

	reading sync.Mutex
	message io.Reader // the rest of a message, guarded by reading
	taken   int       // bytes of it so far
	over    bool      // the port sent its end

	writing sync.Mutex
	writes  deadline
	sent    atomic.Bool // the end of the sending direction was sent
}

// DialPort connects to a port of the sandbox, over the same connection as all requests.
// ctx bounds the wait for the connection and not its life. The error is a *StatusError of 404
// if no process listens on the port, of 403 if it is the server's own, and of 429 if too many
// tunnels are open. The caller must call Close.
func (c *Client) DialPort(ctx context.Context, port uint16) (*Tunnel, error) {
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	number := strconv.Itoa(int(port))
	ws, err := c.webSocket(life, cancel, "/v1/ports/"+number+"/tunnel")
	if err == nil && !stop() {
		_ = ws.CloseNow()
		err = fmt.Errorf("connecting to port %d: %w", port, context.Cause(ctx))
	}
	if err != nil {
		cancel(nil)
		return nil, err
	}
	ws.SetReadLimit(-1) // a message is read as it comes
	t := &Tunnel{ws: ws, life: life, end: cancel, port: address(net.JoinHostPort("sandbox", number))}
	t.reads.cut, t.writes.cut = ws.CloseNow, ws.CloseNow
	return t, nil
}

// Read reads from the port, and returns io.EOF at the end of the stream.
func (t *Tunnel) Read(p []byte) (int, error) {
	t.reading.Lock()
	defer t.reading.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	for !t.over {
		if t.message == nil {
			kind, message, err := t.ws.Reader(t.life)
			if err != nil {
				return 0, t.broken(&t.reads, "reading from", err)
			}
			if kind != websocket.MessageBinary {
				return 0, errors.New("reading from the port: the server sends text")
			}
			t.message, t.taken = message, 0
		}
		n, err := t.message.Read(p)
		t.taken += n
		switch {
		case errors.Is(err, io.EOF):
			t.message, t.over = nil, t.taken == 0
		case err != nil:
			return n, t.broken(&t.reads, "reading from", err)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, io.EOF
}

// Write sends to the port. It waits while the port does not read.
func (t *Tunnel) Write(p []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	if t.sent.Load() {
		return 0, fmt.Errorf("writing to the port: %w", net.ErrClosed)
	}
	if len(p) == 0 {
		return 0, nil // an empty message would end the stream
	}
	if err := t.ws.Write(t.life, websocket.MessageBinary, p); err != nil {
		return 0, t.broken(&t.writes, "writing to", err)
	}
	return len(p), nil
}

// CloseWrite sends the end of the stream to the port.
func (t *Tunnel) CloseWrite() error {
	t.writing.Lock()
	defer t.writing.Unlock()
	if t.sent.Swap(true) {
		return nil
	}
	if err := t.ws.Write(t.life, websocket.MessageBinary, nil); err != nil {
		return t.broken(&t.writes, "writing to", err)
	}
	return nil
}

// Close ends the tunnel and interrupts its other methods.
func (t *Tunnel) Close() error {
	t.reads.stop()
	t.writes.stop()
	_ = t.ws.CloseNow() // an error says that it is closed already
	t.end(net.ErrClosed)
	return nil
}

// broken returns the error for one direction of the tunnel.
func (t *Tunnel) broken(d *deadline, doing string, err error) error {
	closed, ok := errors.AsType[websocket.CloseError](err)
	switch {
	case d.passed.Load():
		return os.ErrDeadlineExceeded
	case ok && closed.Code == websocket.StatusNormalClosure:
		return io.EOF
	case ok && closed.Reason != "":
		return fmt.Errorf("%s the port: the sandbox says: %s", doing, oneLine(closed.Reason))
	}
	return fmt.Errorf("%s the port: %w", doing, err)
}

// LocalAddr returns a name for this side.
func (t *Tunnel) LocalAddr() net.Addr { return address("tunnel") }

// RemoteAddr returns "sandbox:PORT".
func (t *Tunnel) RemoteAddr() net.Addr { return t.port }

// SetDeadline is SetReadDeadline and SetWriteDeadline.
func (t *Tunnel) SetDeadline(at time.Time) error {
	t.reads.set(at)
	t.writes.set(at)
	return nil
}

// SetReadDeadline sets when reading breaks the tunnel; the zero time means never.
func (t *Tunnel) SetReadDeadline(at time.Time) error {
	t.reads.set(at)
	return nil
}

// SetWriteDeadline sets when writing breaks the tunnel; the zero time means never.
func (t *Tunnel) SetWriteDeadline(at time.Time) error {
	t.writes.set(at)
	return nil
}

// deadline breaks a tunnel at a time.
type deadline struct {
	cut    func() error
	passed atomic.Bool

	mu    sync.Mutex
	timer *time.Timer
}

func (d *deadline) set(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
	}
	if !at.IsZero() {
		d.timer = time.AfterFunc(time.Until(at), func() {
			d.passed.Store(true)
			_ = d.cut() // interrupts reads and writes
		})
	}
}

func (d *deadline) stop() { d.set(time.Time{}) }

// address is a net.Addr.
type address string

func (address) Network() string  { return "tunnel" }
func (a address) String() string { return string(a) }
