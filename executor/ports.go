package executor

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/ports"
)

// markName is the variable by which processes of this sandbox are known that have
// another parent by now.
const markName = "ACTIOND_SERVER"

// Ports lists the TCP ports that processes of the sandbox listen on.
func (e *Executor) Ports() ([]api.Port, error) {
	found, err := e.ports.List()
	if err != nil {
		return nil, err
	}
	list := make([]api.Port, 0, len(found))
	for _, p := range found {
		addresses := make([]string, 0, len(p.Addresses))
		for _, a := range p.Addresses {
			addresses = append(addresses, a.String())
		}
		list = append(list, api.Port{
			Port: int(p.Port), Addresses: addresses, PID: p.PID, Process: p.Process, Command: p.Command, Forwards: p.Forwards,
		})
	}
	return list, nil
}

// DialPort connects to a port that a process of the sandbox listens on. An *api.Error
// with status 403 refuses the server's own, and one with status 404 one that cannot be
// reached. ctx bounds the wait.
func (e *Executor) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	conn, err := e.ports.Dial(ctx, port)
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, ports.ErrOwn):
		return nil, &api.Error{Status: 403, Detail: fmt.Sprintf("Port %d is the server's own and is not forwarded", port)}
	case errors.Is(err, ports.ErrNotListening):
		return nil, &api.Error{Status: 404, Detail: fmt.Sprintf("No process of this sandbox listens on port %d", port)}
	case errors.Is(err, ports.ErrNotLoopback):
		return nil, &api.Error{Status: 404, Detail: fmt.Sprintf("Port %d is not on the loopback interface: have the program listen on 127.0.0.1 or 0.0.0.0", port)}
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, new(*net.OpError)):
		return nil, &api.Error{Status: 404, Detail: fmt.Sprintf("Port %d does not answer: %v", port, err)}
	}
	return nil, err
}
