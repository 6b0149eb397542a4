package server

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/tools"
)

// toolsPath is where the sandbox's tools are offered.
const toolsPath = "/mcp"

// offered is what a request for the sandbox's tools says beside its message.
type offered struct {
	request          *http.Request
	dialect, session string
}

// offeredKey finds an offered in a context.
type offeredKey struct{}

// offerTools offers the tools of this sandbox as an MCP server over streamable
// HTTP. It keeps no sessions: every message is answered in its own request.
func (s *Server) offerTools(w http.ResponseWriter, r *http.Request) error {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	if err := wantJSON(r); err != nil {
		return err
	}
	query := r.URL.Query()
	o := offered{request: r, dialect: query.Get("dialect"), session: query.Get("session")}
	if !tools.Known(o.dialect) {
		return unknownDialect(o.dialect)
	}
	if err := api.CheckSession(o.session); err != nil {
		return err
	}
	s.mcpTools().ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), offeredKey{}, o)))
	return nil
}

// newMCPTools returns the handler of the library.
func (s *Server) newMCPTools() http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "actiond", Version: s.cfg.Version}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			o, ok := ctx.Value(offeredKey{}).(offered)
			if !ok {
				return nil, errors.New("a message came outside of a request")
			}
			switch req := req.(type) {
			case *mcp.ListToolsRequest:
				return s.listMCPTools(o), nil
			case *mcp.CallToolRequest:
				return s.callMCPTool(o, req.Params), nil //nolint:contextcheck // the library's does not end with the request
			}
			return next(ctx, method, req)
		}
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: s.cfg.MaxBody,
		// The protection is against web pages that make a name of theirs mean this
		// machine. They have no key; where there is one, gateways may call the
		// sandbox what they like.
		DisableLocalhostProtection: s.locked(),
	})
}

func (s *Server) listMCPTools(o offered) *mcp.ListToolsResult {
	// The library fills the scope in for its own answers alone, and it may not be empty.
	result := &mcp.ListToolsResult{Tools: []*mcp.Tool{}, Cacheable: mcp.Cacheable{CacheScope: "private"}}
	capabilities := s.cfg.Executor.Capabilities()
	for _, d := range tools.Definitions(o.dialect, func(action string) bool { return capabilities[action].Available }) {
		result.Tools = append(result.Tools, &mcp.Tool{Name: d.Name, Description: d.Description, InputSchema: d.Schema})
	}
	return result
}

// callMCPTool calls a tool of the sandbox. What went wrong is a result too: in an
// error of the protocol no model would read it. The client's leaving ends the
// wait and not the command.
func (s *Server) callMCPTool(o offered, params *mcp.CallToolParamsRaw) *mcp.CallToolResult {
	begun := time.Now()
	s.last.Store(int64(begun.Sub(s.started)))
	req, answer := s.understand(api.ToolCall{
		Dialect: o.dialect, Name: params.Name, Arguments: string(params.Arguments), Session: o.session,
	})
	var name string
	if req.Action == nil {
		answer.Observation = s.tasks.Answer(o.session, answer.Observation)
		name = answer.Observation.Kind()
	} else {
		name = req.Action.Kind()
	}
	ctx := o.request.Context()
	answer, err := s.runTool(ctx, req, answer, api.Watch{})
	s.metrics.action(ctx, name, err, time.Since(begun))
	if err != nil {
		refusal, _ := s.verdict(o.request, err)
		return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: api.NewRefusal(refusal, "").Detail}}}
	}
	return &mcp.CallToolResult{IsError: answer.IsError, Content: mcpContent(answer.Observation)}
}

// mcpContent is an observation for a model to read: words, then images.
func mcpContent(o api.Observation) []mcp.Content {
	text, urls := api.Text(o)
	content := []mcp.Content{}
	if text != "" || len(urls) == 0 {
		content = append(content, &mcp.TextContent{Text: text})
	}
	for _, url := range urls {
		if kind, data, ok := imageOf(url); ok {
			content = append(content, &mcp.ImageContent{MIMEType: kind, Data: data})
		}
	}
	return content
}

// imageOf takes a data URL apart.
func imageOf(url string) (mimeType string, data []byte, ok bool) {
	head, body, ok := strings.Cut(url, ";base64,")
	mimeType, isData := strings.CutPrefix(head, "data:")
	if !ok || !isData || !strings.HasPrefix(mimeType, "image/") {
		return "", nil, false
	}
	data, err := base64.StdEncoding.DecodeString(body)
	return mimeType, data, err == nil
}
