package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
)

const (
	// maxTunnels is the number of tunnels that may be open at a time.
	maxTunnels = 64
	// tunnelRate and tunnelBurst bound how often a tunnel is opened, which takes a
	// look at all processes: a page makes many requests at once, and then few.
	tunnelRate  = 20 // a second
	tunnelBurst = 128
	// tunnelWait is how long a request for a tunnel waits for its turn, and then for a free
	// place: at this rate 200 requests wait at most.
	tunnelWait = 10 * time.Second
	// tunnelIdle is how long a tunnel may carry nothing.
	tunnelIdle = time.Hour
	// tunnelBuffer is the size of the buffer of each direction of a tunnel, in bytes.
	tunnelBuffer = 32 << 10
)

// tunnels are those to ports of the sandbox.
type tunnels struct {
	open  chan struct{} // one element per tunnel
	rate  *rate.Limiter
	wait  time.Duration
	idle  time.Duration
	bytes *prometheus.CounterVec
}

func newTunnels() *tunnels {
	t := &tunnels{
		open: make(chan struct{}, maxTunnels), rate: rate.NewLimiter(tunnelRate, tunnelBurst), wait: tunnelWait, idle: tunnelIdle,
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "actiond_tunnel_bytes_total",
			Help: "Bytes that tunnels carried, in to a port of the sandbox, or out of it.",
		}, []string{"direction"}),
	}
	t.bytes.WithLabelValues("in")
	t.bytes.WithLabelValues("out")
	return t
}

// listPorts answers with the ports on which processes of the sandbox listen.
func (s *Server) listPorts(w http.ResponseWriter, _ *http.Request) error {
	list := api.PortList{Ports: []api.Port{}}
	if s.cfg.Ports != nil {
		var err error
		if list.Ports, err = s.cfg.Ports.Ports(); err != nil {
			return err
		}
	}
	return writeJSON(w, http.StatusOK, list)
}

// tunnel connects a WebSocket to a port of the sandbox.
func (s *Server) tunnel(w http.ResponseWriter, r *http.Request) error {
	port, err := api.ParsePort(r.PathValue("port"))
	if err != nil {
		return err
	}
	if err := upgrade(w, r); err != nil {
		return err
	}
	if err := s.awaitTunnel(r.Context()); err != nil {
		return err
	}
	defer func() { <-s.tunnels.open }()
	s.attached.RLock()
	defer s.attached.RUnlock()
	if s.draining.Load() {
		return refuse(http.StatusTooManyRequests, "The server is shutting down")
	}
	s.life.begin()
	defer s.life.end()
	if s.cfg.Ports == nil {
		return refuse(http.StatusNotFound, "This server forwards no ports")
	}
	conn, err := s.cfg.Ports.DialPort(r.Context(), port)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	httpserver.SetStall(r, s.tunnels.idle) // a client that reads late holds up the port alone
	// The origin and the rest of the request were checked.
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		return err
	}
	s.relay(r.Context(), ws, conn)
	return nil
}

// awaitTunnel waits until one more tunnel may be opened, and takes its place in open. It
// refuses where that would take too long.
func (s *Server) awaitTunnel(ctx context.Context) error {
	turn := s.tunnels.rate.Reserve()
	if !turn.OK() || turn.Delay() > s.tunnels.wait {
		turn.Cancel()
		return refuse(http.StatusTooManyRequests, "Tunnels are opened too fast: %d a second can be", tunnelRate)
	}
	timer := time.NewTimer(turn.Delay())
	defer timer.Stop()
	var open chan<- struct{} // nil until it is this request's turn
	for {
		select {
		case open <- struct{}{}:
			return nil
		case <-timer.C:
			if open != nil {
				return refuse(http.StatusTooManyRequests, "%d tunnels are open already; close one first", maxTunnels)
			}
			open = s.tunnels.open
			timer.Reset(s.tunnels.wait)
		case <-s.hungUp:
			return refuse(http.StatusTooManyRequests, "The server is shutting down")
		case <-ctx.Done():
			turn.Cancel() // so that others need not wait for its turn
			return ctx.Err()
		}
	}
}

// errTunnelIdle ends a tunnel that carried nothing for too long.
var errTunnelIdle = errors.New("nothing was sent for too long")

// relay carries bytes both ways until both sides have ended, one of them breaks, or
// nothing was carried for too long. Each direction waits for its reader, with one
// buffer.
func (s *Server) relay(ctx context.Context, ws *websocket.Conn, conn net.Conn) {
	ctx, end := context.WithCancelCause(ctx)
	var others sync.WaitGroup
	defer others.Wait()
	defer end(nil)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // and calls that wait for it
	idle := time.AfterFunc(s.tunnels.idle, func() { end(errTunnelIdle) })
	defer idle.Stop()
	count := func(direction string) func(int) {
		bytes := s.tunnels.bytes.WithLabelValues(direction)
		return func(n int) {
			idle.Reset(s.tunnels.idle)
			bytes.Add(float64(n))
		}
	}
	ended := make(chan error, 3) // nil for a direction that is done
	others.Go(func() { ended <- toPort(context.WithoutCancel(ctx), ws, conn, count("in"), func() { ended <- nil }) })
	others.Go(func() { ended <- fromPort(ctx, ws, conn, count("out")) })
	var err error
	for range 2 {
		select {
		case err = <-ended:
		case <-s.hungUp:
			err = errStopping
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			break
		}
	}
	_ = conn.Close() // the other direction ends
	cut := time.AfterFunc(answerTime, func() { _ = ws.CloseNow() })
	defer cut.Stop()
	_ = ws.Close(tunnelEnd(err)) // a client that is gone already gets nothing
}

// tunnelEnd says why a tunnel ends.
func tunnelEnd(err error) (websocket.StatusCode, string) {
	switch {
	case err == nil, errors.Is(err, errClientLeft):
		return websocket.StatusNormalClosure, ""
	case errors.Is(err, errStopping):
		return websocket.StatusGoingAway, "the server is shutting down"
	case errors.Is(err, errTunnelIdle):
		return websocket.StatusGoingAway, errTunnelIdle.Error()
	}
	return websocket.StatusInternalError, "the connection to the port broke"
}

// toPort writes the client's messages to the port until it leaves. An empty message says that no
// more comes, which done reports. The end of ctx would cut the connection before its last
// message.
func toPort(ctx context.Context, ws *websocket.Conn, conn net.Conn, count func(int), done func()) error {
	over := false
	ws.SetReadLimit(-1) // a message is passed on as it comes
	buf := make([]byte, tunnelBuffer)
	for {
		kind, message, err := ws.Reader(ctx)
		if err != nil {
			return errClientLeft
		}
		if kind != websocket.MessageBinary {
			return errors.New("a tunnel carries binary messages only")
		}
		total := 0
		for err == nil {
			var n int
			n, err = message.Read(buf)
			if total += n; n == 0 {
				continue
			}
			if over {
				return errors.New("the client sends more after the end")
			}
			if _, err := conn.Write(buf[:n]); err != nil {
				return fmt.Errorf("writing to the port: %w", err)
			}
			count(n)
		}
		if !errors.Is(err, io.EOF) {
			return errClientLeft
		}
		if total == 0 && !over {
			over = true
			if half, ok := conn.(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite() // the other direction says when the connection is broken
			}
			done()
		}
	}
}

// fromPort sends the bytes from the port, and an empty message at their end.
func fromPort(ctx context.Context, ws *websocket.Conn, conn net.Conn, count func(int)) error {
	buf := make([]byte, tunnelBuffer)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			if err := ws.Write(ctx, websocket.MessageBinary, buf[:n]); err != nil {
				return errClientLeft
			}
			count(n)
		}
		if errors.Is(err, io.EOF) {
			if err := ws.Write(ctx, websocket.MessageBinary, nil); err != nil {
				return errClientLeft
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading from the port: %w", err)
		}
	}
}
