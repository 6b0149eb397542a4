package gateway_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/gateway"
	"github.com/actiond/actiond/server"
)

// oneMCP keeps one MCP server.
type oneMCP struct{ server *mcp.Server }

func (oneMCP) UpdateMCP([]api.MCPServer) ([]string, error) { return nil, nil }
func (oneMCP) CheckMCP() error                             { return nil }

func (o oneMCP) OpenMCP() (net.Conn, error) {
	ours, theirs := net.Pipe()
	_, err := o.server.Connect(context.Background(), &mcp.IOTransport{Reader: ours, Writer: ours}, nil)
	return theirs, err
}

// offering is an executor that has nothing but a shell.
type offering struct{ server.Executor }

func (offering) Capabilities() map[string]api.Capability {
	return map[string]api.Capability{"run": {Available: true}}
}

// headers sends these with every request.
type headers map[string]string

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h {
		r.Header.Set(name, value)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// Clients of the SDK reach the sandbox's servers and its tools through the
// gateway, below whatever path it is seen at, with each key that is enough.
func TestMCPThroughTheGateway(t *testing.T) {
	t.Parallel()
	inner := mcp.NewServer(&mcp.Implementation{Name: "inner", Version: "1"}, nil)
	mcp.AddTool(inner, &mcp.Tool{Name: "double"}, func(_ context.Context, _ *mcp.CallToolRequest, in struct{ Text string }) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text + in.Text}}}, nil, nil
	})
	for _, below := range []string{"", "/base"} {
		var h *fixture
		front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.StripPrefix(below, h).ServeHTTP(w, r)
		}))
		t.Cleanup(front.Close)
		h = newFixture(t, func(_ *fixture, cfg *gateway.Config) { cfg.PublicURL = front.URL + below })
		s := h.make(t, `{"image":"debian"}`)
		h.answer = server.New(server.Config{Executor: offering{}, Key: s.SessionKey, MCP: oneMCP{inner}}).ServeHTTP
		reachMCP(t, s)
	}
}

// reachMCP is every way in which clients reach a sandbox with the server of
// TestMCPThroughTheGateway.
func reachMCP(t *testing.T, s api.Sandbox) {
	t.Helper()
	base := s.URL
	connect := func(transport mcp.Transport) *mcp.ClientSession {
		t.Helper()
		session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), transport, nil)
		if err != nil {
			t.Fatal(err)
		}
		return session
	}
	for name, sent := range map[string]headers{
		"the gateway's key":      {api.GatewayKeyHeader: theKey},
		"the session key":        {api.KeyHeader: s.SessionKey},
		"as OpenHands sends it":  {api.KeyHeader: s.SessionKey, "Authorization": "Bearer " + s.SessionKey},
		"a prefix of the client": {api.GatewayKeyHeader: theKey, "X-Forwarded-Prefix": "/elsewhere"},
	} {
		for _, path := range []string{"/mcp/sse", "/sse"} {
			session := connect(&mcp.SSEClientTransport{Endpoint: base + path, HTTPClient: &http.Client{Transport: sent}})
			result, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "double", Arguments: map[string]any{"Text": "ab"}})
			if err != nil || result.Content[0].(*mcp.TextContent).Text != "abab" {
				t.Errorf("%s, %s: got %+v, %v", name, path, result, err)
			}
			_ = session.Close()
		}
	}
	session := connect(&mcp.StreamableClientTransport{Endpoint: base + "/mcp?dialect=actiond", HTTPClient: &http.Client{Transport: headers{api.KeyHeader: s.SessionKey}}})
	if list, err := session.ListTools(t.Context(), nil); err != nil || len(list.Tools) != 1 || list.Tools[0].Name != "bash" {
		t.Errorf("in a dialect: got %+v, %v", list, err)
	}
	_ = session.Close()
	for name, sent := range map[string]headers{
		"the gateway's key": {api.GatewayKeyHeader: theKey},
		"the session key":   {api.KeyHeader: s.SessionKey},
		"a token":           {"Authorization": "Bearer " + s.SessionKey},
		"both":              {api.GatewayKeyHeader: theKey, "Authorization": "bearer " + theKey},
	} {
		session := connect(&mcp.StreamableClientTransport{Endpoint: base + "/mcp", HTTPClient: &http.Client{Transport: sent}})
		if list, err := session.ListTools(t.Context(), nil); err != nil || len(list.Tools) == 0 {
			t.Errorf("%s: got %+v, %v", name, list, err)
		}
		_ = session.Close()
	}
}

// A token is the gateway's key or a session's, where it is not an application's, and differs from no
// key in their headers.
func TestTokensAtTheGateway(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }
	a, b := h.make(t, `{"image":"debian"}`), h.make(t, `{"image":"debian"}`)
	addr := h.listen(t)
	for _, test := range []struct {
		name, path string
		sent       headers
		status     int
	}{
		{"its own", "/mcp", headers{"Authorization": "Bearer " + a.SessionKey}, 418},
		{"with a query", "/mcp?dialect=gemini", headers{"Authorization": "Bearer " + a.SessionKey}, 418},
		{"another's", "/mcp", headers{"Authorization": "Bearer " + b.SessionKey}, 403},
		{"another's, beside the gateway's key", "/mcp", headers{"Authorization": "Bearer " + b.SessionKey, api.GatewayKeyHeader: theKey}, 401},
		{"its own, beside the gateway's key", "/mcp", headers{"Authorization": "Bearer " + a.SessionKey, api.GatewayKeyHeader: theKey}, 401},
		{"both headers, and one of them again", "/v1/tools", headers{"Authorization": "Bearer " + a.SessionKey, api.GatewayKeyHeader: theKey, api.KeyHeader: a.SessionKey}, 418},
		{"its own twice", "/v1/tools", headers{"Authorization": "Bearer " + a.SessionKey, api.KeyHeader: a.SessionKey}, 418},
		{"the gateway's twice", "/v1/tools", headers{"Authorization": "Bearer " + theKey, api.GatewayKeyHeader: theKey}, 418},
		{"another's twice", "/v1/tools", headers{"Authorization": "Bearer " + b.SessionKey, api.KeyHeader: b.SessionKey}, 403},
		{"its own, beside another's key", "/mcp", headers{"Authorization": "Bearer " + a.SessionKey, api.KeyHeader: b.SessionKey}, 401},
		{"its own, beside a wrong key of the gateway", "/mcp", headers{"Authorization": "Bearer " + a.SessionKey, api.GatewayKeyHeader: "x"}, 401},
		{"the gateway's key", "/mcp", headers{"Authorization": "Bearer " + theKey}, 418},
		{"the gateway's key, beside another's", "/mcp", headers{"Authorization": "Bearer " + theKey, api.KeyHeader: b.SessionKey}, 401},
		{"another scheme", "/mcp", headers{"Authorization": "Basic " + a.SessionKey}, 403},
		{"empty", "/mcp", headers{"Authorization": "Bearer "}, 403},
		{"elsewhere", "/v1/tools", headers{"Authorization": "Bearer " + a.SessionKey}, 418},
		{"elsewhere, the gateway's key", "/metrics", headers{"Authorization": "Bearer " + theKey}, 418},
		{"a port", "/ports/80/", headers{"Authorization": "Bearer " + a.SessionKey}, 403},
		{"a port, the gateway's key", "/ports/80/", headers{"Authorization": "Bearer " + theKey}, 403},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/sandboxes/"+a.ID+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := test.sent.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.status {
			t.Errorf("%s: got %d, want %d", test.name, resp.StatusCode, test.status)
		}
	}
}
