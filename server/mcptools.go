package server

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/tools"
	"github.com/actiond/actiond/internal/channel"
)

// toolsPath is where the sandbox's tools are offered.
const toolsPath = "/mcp"

// offered has the parts of a request for the sandbox's tools beside its message.
type offered struct {
	request          *http.Request
	dialect, session string
	changes          string                 // how much of its changes a call asks for
	leave            atomic.Pointer[func()] // releases the semaphore of the request; the first call takes it
	held             int64                  // bytes of Server.shares, which leave gives back too

	mu    sync.Mutex
	sent  []func() // called once the answer is written: until then the library copies its parts
	batch bool     // there are more calls, for whose memory the others must not wait until then
}

// whenSent has a function called once the answer is written, or at once in a batch.
func (o *offered) whenSent(do func()) {
	o.mu.Lock()
	if !o.batch {
		o.sent = append(o.sent, do)
		do = func() {}
	}
	o.mu.Unlock()
	do()
}

// release calls the functions of whenSent.
func (o *offered) release(batch bool) {
	o.mu.Lock()
	sent := o.sent
	o.sent, o.batch = nil, batch
	o.mu.Unlock()
	for _, do := range sent {
		do()
	}
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
	query := r.URL.Query()
	o := &offered{request: r, dialect: query.Get("dialect"), session: query.Get("session"), changes: query.Get("changes")}
	large, release := s.large(r)
	r.Body = large
	leaveWhole := func() { leave(); release() }
	o.leave.Store(&leaveWhole)
	defer func() {
		if leave := o.leave.Swap(nil); leave != nil {
			(*leave)()
		}
	}()
	if err := tools.CheckDialect(o.dialect); err != nil {
		return api.BadRequest(err.Error())
	}
	if err := api.CheckSession(o.session); err != nil {
		return err
	}
	if err := api.CheckChanges(o.changes); err != nil {
		return invalid("query.changes: %v", err)
	}
	body, err := readJSON(r, s.cfg.MaxBody)
	if err != nil {
		return err
	}
	o.held = large.held
	defer o.release(false)
	handler := s.mcpTools().one
	if bytes.Contains(body, []byte(`"progressToken"`)) {
		handler = s.mcpTools().events
		w.Header().Set("X-Accel-Buffering", "no") // asks nginx not to buffer
	}
	r = r.WithContext(context.WithValue(r.Context(), offeredKey{}, o))
	r.Body = io.NopCloser(bytes.NewReader(body))
	handler.ServeHTTP(w, r)
	return nil
}

// mcpHandlers are the handlers of the library: one answers with one JSON message, events with
// an event stream, in which notifications about a call can precede its result.
type mcpHandlers struct{ one, events http.Handler }

// newMCPTools returns the handlers of the library.
func (s *Server) newMCPTools() mcpHandlers {
	server := mcp.NewServer(&mcp.Implementation{Name: "actiond", Version: s.cfg.Version}, &mcp.ServerOptions{
		Instructions: mcpInstructions,
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}},
	})
	server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			o, ok := ctx.Value(offeredKey{}).(*offered)
			if !ok {
				return nil, errors.New("a message came outside of a request")
			}
			switch req := req.(type) {
			case *mcp.ListToolsRequest:
				return s.listMCPTools(o), nil
			case *mcp.CallToolRequest:
				return s.callMCPTool(ctx, o, req), nil
			}
			return next(ctx, method, req)
		}
	})
	handler := func(one bool) http.Handler {
		return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{
			Stateless: true, JSONResponse: one, MaxRequestBodyBytes: s.cfg.MaxBody,
			// The protection is against web pages that make a name of theirs mean this
			// machine. They have no key; where there is one, gateways may call the
			// sandbox what they like.
			DisableLocalhostProtection: s.locked(),
		})
	}
	return mcpHandlers{one: handler(true), events: handler(false)}
}

func (s *Server) listMCPTools(o *offered) *mcp.ListToolsResult {
	// The library fills the scope in for its own answers alone, and it may not be empty.
	result := &mcp.ListToolsResult{Tools: []*mcp.Tool{}, Cacheable: mcp.Cacheable{CacheScope: "private"}}
	for _, d := range tools.Definitions(o.dialect, s.has()) {
		result.Tools = append(result.Tools, &mcp.Tool{Name: d.Name, Description: d.Description, InputSchema: d.Schema, Annotations: annotations(d)})
	}
	return result
}

// mcpInstructions are true of every dialect.
const mcpInstructions = "The tools work in one sandbox, a Linux system of its own. Commands run in one persistent shell, whose directory and " +
	"variables last from call to call. A command that is silent for a while, or whose time is over, goes on: the result says so, and how to wait for it or to end it."

// annotations describe the effects of a tool on the sandbox and beyond.
func annotations(d tools.Definition) *mcp.ToolAnnotations {
	a := &mcp.ToolAnnotations{DestructiveHint: new(true), OpenWorldHint: new(false)}
	switch d.Action {
	case api.RunAction{}.Kind(), api.ExecAction{}.Kind(), api.IPythonAction{}.Kind(), api.BrowseInteractiveAction{}.Kind():
		a.OpenWorldHint = new(true)
	case api.WriteAction{}.Kind():
		a.IdempotentHint = true
	case api.EditAction{}.Kind(), tools.NeedsUndo:
	case "": // of these, a task list is kept
		a.DestructiveHint, a.ReadOnlyHint = new(false), d.Name != "task_tracker"
	default: // reads and searches
		a.DestructiveHint, a.ReadOnlyHint = new(false), true
	}
	return a
}

// callMCPTool calls a tool of the sandbox. A failure is a result too: no
// model would read an error of the protocol.
func (s *Server) callMCPTool(ctx context.Context, o *offered, req *mcp.CallToolRequest) *mcp.CallToolResult {
	answer, changes, id, err := s.runMCPTool(ctx, o, req)
	result := &mcp.CallToolResult{IsError: answer.IsError, Content: mcpContent(answer)}
	if err != nil {
		refusal, _ := s.verdict(o.request, err)
		result.IsError, result.Content = true, []mcp.Content{&mcp.TextContent{Text: api.NewRefusal(refusal, "").Detail}}
	}
	if id != "" {
		result.Meta = mcp.Meta{api.MCPIdentity: id}
	}
	if changes != nil && err == nil && result.Meta != nil {
		result.Meta[api.MCPChanges] = changes
	}
	return result
}

// requestIsCall is the first revision of the protocol in which the request is the whole life of
// a call: a closed response cancels it.
const requestIsCall = "2026-07-28"

// runMCPTool runs a call of a tool as an action, and returns its answer, its changes if these are asked for, and its
// id. A client that leaves ends the wait; in revisions of [requestIsCall] the action too, unless the client named an
// id, by which it can come back.
func (s *Server) runMCPTool(
	ctx context.Context, o *offered, req *mcp.CallToolRequest,
) (answer api.ToolAnswer, changes any, id string, err error) {
	c, leave, err := s.enterMCP(ctx, o, req.Params)
	if err != nil {
		return answer, nil, "", err
	}
	defer func() {
		if _, refused := errors.AsType[*api.Error](err); refused && !c.clientKey {
			id = "" // it leads nowhere
		}
	}()
	run, arrival, end, err := s.start(ctx, c, leave)
	if err != nil {
		return answer, nil, c.ID, err
	}
	defer o.whenSent(end)
	if token := req.Params.GetProgressToken(); token != nil && arrival != actions.After {
		defer s.notifyProgress(ctx, req.Session, token, run)()
	}
	request := o.request.Context()
	body, written, early, err := s.answerOf(request, c, run) //nolint:contextcheck // the library's does not end with the request
	if err == nil {
		o.whenSent(written)
		answer, err = api.DecodeToolAnswer(body)
		if o.changes != "" && !early {
			changes, err = api.RawChanges(changesOf(run))
		}
		return answer, changes, run.ID(), err
	}
	left := errors.Is(context.Cause(request), context.Canceled) //nolint:contextcheck // not errStopping
	if left && arrival == actions.First && !c.clientKey && o.request.Header.Get("Mcp-Protocol-Version") >= requestIsCall {
		s.actions.Cancel(run)
	}
	return answer, nil, run.ID(), err
}

// enterMCP acquires the semaphore of actions in flight for a call, and reads
// it. leave releases the semaphore, once.
func (s *Server) enterMCP(
	ctx context.Context, o *offered, params *mcp.CallToolParamsRaw,
) (c *call, leave func(), err error) {
	begun := time.Now()
	s.last.Store(int64(begun.Sub(s.started)))
	held := int64(0)
	if place := o.leave.Swap(nil); place != nil {
		leave, held = *place, o.held
	} else { // of a batch
		o.release(true)
		if leave, err = s.enter(); err != nil {
			return nil, nil, err
		}
	}
	if c, err = s.readMCPCall(o, params); err != nil {
		leave()
		s.metrics.action(ctx, unread, err, time.Since(begun))
		return nil, nil, err
	}
	c.Held = held
	return c, leave, nil
}

// readMCPCall understands a call, whose id may be in its _meta or in a header.
func (s *Server) readMCPCall(o *offered, params *mcp.CallToolParamsRaw) (*call, error) {
	sent := api.ToolCall{Dialect: o.dialect, Name: params.Name, Arguments: string(params.Arguments), Session: o.session, Changes: o.changes}
	body, err := api.EncodeToolCall(sent)
	if err != nil {
		return nil, api.BadRequest(err.Error())
	}
	c := s.toolCall(sent)
	if value, ok := params.Meta[api.MCPIdentity]; ok {
		key, _ := value.(string)
		if err := api.CheckKey(key); err != nil {
			return nil, api.BadRequest(fmt.Sprintf("_meta %q: %v", api.MCPIdentity, err))
		}
		c.Request.Key = key
	}
	return c, c.identify(o.request, body)
}

// notifyProgress notifies the client that a call goes on, until stop: while the call prints, and
// after silences. Progress is in seconds.
func (s *Server) notifyProgress(
	ctx context.Context, session *mcp.ServerSession, token any, run *actions.Run,
) (stop func()) {
	return channel.Go(func(over <-chan struct{}) {
		begun := time.Now()
		notified, printed := begun, int64(0)
		ticker := time.NewTicker(s.heartbeat / heartbeatTicks)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-over:
				return
			}
			info := run.Info()
			if info.Output == printed && time.Since(notified) < s.heartbeat {
				continue
			}
			notified, printed = time.Now(), info.Output
			message := fmt.Sprintf("%d bytes of output", info.Output)
			if waiting := run.Waiting(); waiting != nil {
				message += ": " + waiting.Text
			} else if info.State == journal.Reserved {
				message = "waits for its turn in the session"
			}
			_ = session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ // without a reader the wait ends
				ProgressToken: token, Progress: notified.Sub(begun).Seconds(), Message: message,
			})
		}
	})
}

// heartbeatTicks is how many notifications come at most in the time of a heartbeat.
const heartbeatTicks = 15

// mcpContent is an answer for a model to read: words, then images.
func mcpContent(a api.ToolAnswer) []mcp.Content {
	_, urls := api.Text(a.Observation)
	content := []mcp.Content{}
	if a.Text != "" || len(urls) == 0 {
		content = append(content, &mcp.TextContent{Text: a.Text})
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
