package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"mime"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/random"
)

// mcpSendTime bounds how long a message waits to be taken up.
const mcpSendTime = 10 * time.Second

// mcpClients are the connections of MCP clients by their session ids. The zero
// value is ready.
type mcpClients struct {
	mu   sync.Mutex
	byID map[string]*mcpClient
}

// mcpClient is one connection.
type mcpClient struct {
	sending sync.Mutex // one message after the other
	conn    net.Conn
}

// add gives a connection an id that cannot be guessed.
func (c *mcpClients) add(conn net.Conn) (id string) {
	id = random.Hex(16)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		c.byID = map[string]*mcpClient{}
	}
	c.byID[id] = &mcpClient{conn: conn}
	return id
}

func (c *mcpClients) remove(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byID, id)
}

// get finds a connection by the id in a request.
func (c *mcpClients) get(id string) (*mcpClient, error) {
	if id == "" {
		return nil, api.BadRequest("session_id is required")
	}
	id = strings.ReplaceAll(id, "-", "") // as some write such numbers
	if raw, err := hex.DecodeString(id); err != nil || len(raw) != 16 {
		return nil, api.BadRequest("Invalid session ID")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if client := c.byID[id]; client != nil {
		return client, nil
	}
	return nil, api.NotFound("Could not find session")
}

// updateMCPServer replaces the MCP servers of the agent. Servers that cannot work are named
// in the field of the answer where clients look for errors.
func (s *Server) updateMCPServer(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(r, maxSmallBody)
	if err != nil {
		return err
	}
	servers, err := api.DecodeMCPServers(body)
	if err != nil {
		return err
	}
	var problems []string
	switch {
	case s.cfg.MCP != nil:
		if problems, err = s.cfg.MCP.UpdateMCP(servers); err != nil {
			return err
		}
	case len(servers) > 0:
		problems = []string{noMCP}
	}
	return writeJSON(w, http.StatusOK, api.MCPUpdate{
		Detail: "MCP server updated successfully", RouterErrorLog: strings.Join(problems, "\n"),
	})
}

const noMCP = "This sandbox cannot run MCP servers"

// The paths of the transport over events, below "/mcp" and below "/" (docs/reference/openhands-protocol.md,
// section 7).
const (
	eventsPath   = "/sse"
	messagesPath = "/messages/"
)

// requireBearer requires the key a second time, as a bearer token. It checks for servers
// first: before the first one, the reference does not have these paths.
func (s *Server) requireBearer(h httpserver.Handler) httpserver.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if s.cfg.MCP == nil {
			return api.NotFound(noMCP)
		}
		if err := s.cfg.MCP.CheckMCP(); err != nil {
			return err
		}
		if s.locked() && s.owner.check(httpserver.Bearer(r)) != nil {
			return refuse(http.StatusUnauthorized, "Authentication required")
		}
		return h(w, r)
	}
}

// mcpEvents connects an MCP client to the servers of the agent: the messages for
// it are events of the answer, and its own come to mcpMessage. That is the
// transport of the protocol's revision 2024-11-05 (docs/reference/openhands-protocol.md, section 7).
func (s *Server) mcpEvents(w http.ResponseWriter, r *http.Request) error {
	prefix, err := forwardedPrefix(r)
	if err != nil {
		return err
	}
	conn, err := s.cfg.MCP.OpenMCP()
	if err != nil {
		return err
	}
	id := s.mcp.add(conn)
	defer s.mcp.remove(id)
	ctx, end := context.WithCancel(r.Context())
	lines := make(chan []byte)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer func() { _ = conn.Close() }()
	defer end()
	reading.Go(func() { readLines(ctx, conn, lines) })

	out := &events{w: w, form: eventStreamType}
	out.begin()
	endpoint := prefix + strings.TrimSuffix(r.URL.Path, eventsPath) + messagesPath + "?session_id=" + id
	s.forwardMCP(ctx, out, endpoint, lines)
	return nil
}

// readLines reads until the connection's end, or that of ctx.
func readLines(ctx context.Context, conn net.Conn, lines chan<- []byte) {
	defer close(lines)
	for reader := bufio.NewReader(conn); ; {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			return
		}
		select {
		case lines <- bytes.TrimSpace(line):
		case <-ctx.Done():
			return
		}
	}
}

// forwardMCP writes the events of one client until the client or the server ends the
// connection. The first event says where the client's messages go.
func (s *Server) forwardMCP(ctx context.Context, out *events, endpoint string, lines <-chan []byte) {
	event, data := "endpoint", []byte(endpoint)
	ping := time.NewTicker(s.heartbeat)
	defer ping.Stop()
	for out.raw(event, data) == nil { // a client that does not read has left
		select {
		case line, ok := <-lines:
			if !ok {
				return
			}
			event, data = "message", line
		case <-ping.C:
			event, data = "", nil
		case <-ctx.Done():
			return
		case <-s.hungUp:
			return
		}
	}
}

// mcpMessage takes a message of a connected MCP client.
func (s *Server) mcpMessage(w http.ResponseWriter, r *http.Request) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != httpserver.JSON {
		return api.BadRequest("Invalid Content-Type header: must be application/json")
	}
	client, err := s.mcp.get(r.URL.Query().Get("session_id"))
	if err != nil {
		return err
	}
	large, release := s.large(r)
	defer release()
	r.Body = large
	body, err := readBody(r, s.cfg.MaxBody)
	if err != nil {
		return err
	}
	if err := api.CheckMCPMessage(body); err != nil {
		return err
	}
	if client.send(body) != nil {
		return api.NotFound("Could not find session: its client has left, or does not read what is sent to it")
	}
	httpserver.WriteBody(w, http.StatusAccepted, "text/plain; charset=utf-8", []byte("Accepted"))
	return nil
}

// send hands over one message.
func (c *mcpClient) send(message []byte) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	if err := c.conn.SetWriteDeadline(time.Now().Add(mcpSendTime)); err != nil {
		return err
	}
	_, err := c.conn.Write(append(bytes.TrimSpace(message), '\n'))
	if err != nil {
		_ = c.conn.Close() // half a message cannot be taken back
	}
	return err
}
