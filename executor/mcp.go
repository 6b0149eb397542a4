package executor

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/mcp"
)

const noMCP = "no MCP servers are configured: post a list of them to /update_mcp_server"

// newMCP returns the keeper of MCP servers, which starts nothing yet.
func newMCP(cfg Config) *mcp.Proxy {
	return mcp.New(mcp.Config{
		Dir: cfg.WorkingDir, Env: environment(cfg.Env, cfg.User, nil), User: cfg.User, Logger: cfg.Logger,
	})
}

// UpdateMCP replaces the MCP servers that the sandbox keeps. Nothing is started
// yet. The problems name in a sentence each a server that cannot work. The error is an
// *api.Error where nothing was replaced because there are too many.
func (e *Executor) UpdateMCP(servers []api.MCPServer) (problems []string, err error) {
	list := make([]mcp.Server, len(servers))
	for i, s := range servers {
		list[i] = mcp.Server{Name: s.Name, Command: s.Command, Args: s.Args, Env: s.Env}
	}
	problems, err = e.mcp.Update(list)
	if errors.Is(err, mcp.ErrMany) {
		return nil, api.BadRequest(err.Error())
	}
	return problems, err
}

// CheckMCP returns an *api.Error with status 404 where there never were any
// servers.
func (e *Executor) CheckMCP() error {
	if _, _, _, configured := e.mcp.State(); !configured {
		return api.NotFound(noMCP)
	}
	return nil
}

// OpenMCP connects a client to the MCP servers, which it sees as one: JSON-RPC
// messages both ways, those to the client a line each. The caller must read from
// the connection, and close it. The error is an *api.Error with status 404 where
// there never were any servers, and 429 where too many clients are connected.
func (e *Executor) OpenMCP() (net.Conn, error) {
	conn, err := e.mcp.Open()
	switch {
	case errors.Is(err, mcp.ErrNone):
		return nil, api.NotFound(noMCP)
	case errors.Is(err, mcp.ErrMany):
		return nil, api.TooMany(err.Error())
	}
	return conn, err
}

// callMCPTool calls a tool of an MCP server.
func (e *Executor) callMCPTool(ctx context.Context, a api.MCPAction, req api.Request) (api.Observation, error) {
	timeout, ok := limit(req)
	if !ok {
		timeout = mcp.CallTime
	}
	arguments := a.Arguments
	if arguments == nil {
		arguments = map[string]any{}
	}
	result, err := e.mcp.Call(ctx, a.Name, arguments, timeout)
	switch {
	case err == nil:
		return api.MCPObservation{Content: api.MCPResult(result).Text(), Name: a.Name, Arguments: arguments}, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, mcp.ErrNone):
		return nil, api.BadRequest(noMCP)
	case errors.Is(err, mcp.ErrMany):
		return nil, api.TooMany(err.Error())
	case errors.Is(err, mcp.ErrClosed):
		return nil, err
	}
	// The call may have reached the server.
	return api.ErrorObservation{Content: err.Error(), Outcome: api.OutcomeUnknown}, nil
}

// mcpCapability counts the servers. It names none, as everybody may read it.
func (e *Executor) mcpCapability() api.Capability {
	servers, running, failed, configured := e.mcp.State()
	if !configured {
		return api.Capability{Detail: noMCP}
	}
	return api.Capability{
		Available: servers > 0,
		Detail:    fmt.Sprintf("MCP servers: %d configured, started on first use; %d running, %d failed", servers, running, failed),
	}
}
