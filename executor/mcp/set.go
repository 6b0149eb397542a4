package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// set is the result of one Update: the servers, sorted by name. The tools of a
// single server keep their names; those of several servers get the name of the
// server in front, as in the reference (docs/reference/openhands-protocol.md, section 7).
type set struct {
	runners []*runner
	uses    int // guarded by the proxy
}

// server returns the set as one MCP server.
func (s *set) server(p *Proxy) *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "actiond", Version: "1"}, &sdk.ServerOptions{
		Capabilities: &sdk.ServerCapabilities{
			Tools: &sdk.ToolCapabilities{}, Resources: &sdk.ResourceCapabilities{}, Prompts: &sdk.PromptCapabilities{},
		},
		// The transport over SSE has the revisions with a handshake.
		SupportedProtocolVersions: slices.DeleteFunc(sdk.SupportedProtocolVersions(), func(v string) bool { return v > handshake }),
	})
	server.AddReceivingMiddleware(func(next sdk.MethodHandler) sdk.MethodHandler {
		return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
			return s.answer(ctx, p, next, method, req)
		}
	})
	return server
}

// private forbids caches to share an answer. The library says so only in its
// own answers, and clients of its newest revision refuse a result without it.
var private = sdk.Cacheable{CacheScope: "private"}

// answer is the switch over the requests of clients.
func (s *set) answer(
	ctx context.Context, p *Proxy, next sdk.MethodHandler, method string, req sdk.Request,
) (sdk.Result, error) {
	switch req := req.(type) {
	case *sdk.ListToolsRequest:
		tools, err := s.tools(ctx, p)
		return &sdk.ListToolsResult{Tools: tools, Cacheable: private}, err
	case *sdk.CallToolRequest:
		params := &sdk.CallToolParams{Name: req.Params.Name}
		if req.Params.Arguments != nil {
			params.Arguments = req.Params.Arguments
		}
		result, err := s.call(ctx, p, params, CallTime)
		if _, said := errors.AsType[*jsonrpc.Error](err); err != nil && !said {
			// The model reads a result, but only a program reads an error.
			return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: err.Error()}}}, nil
		}
		return result, err
	case *sdk.ListPromptsRequest:
		prompts, err := s.prompts(ctx, p)
		return &sdk.ListPromptsResult{Prompts: prompts, Cacheable: private}, err
	case *sdk.GetPromptRequest:
		return s.prompt(ctx, p, req.Params)
	case *sdk.ListResourcesRequest:
		resources, err := s.resources(ctx, p)
		return &sdk.ListResourcesResult{Resources: resources, Cacheable: private}, err
	case *sdk.ListResourceTemplatesRequest:
		templates, err := s.templates(ctx, p)
		return &sdk.ListResourceTemplatesResult{ResourceTemplates: templates, Cacheable: private}, err
	case *sdk.ReadResourceRequest:
		resource, err := s.resource(ctx, p, req.Params)
		if err == nil && resource.CacheScope == "" {
			resource.Cacheable = private
		}
		return resource, err
	}
	return next(ctx, method, req)
}

// tools lists the tools of all servers.
func (s *set) tools(ctx context.Context, p *Proxy) ([]*sdk.Tool, error) {
	all, err := gather(ctx, p, s, func(ctx context.Context, r *runner) ([]*sdk.Tool, error) {
		list, err := r.tools(ctx)
		return named(s, r, list, func(t *sdk.Tool) *string {
			repair(t)
			return &t.Name
		}), err
	})
	return distinct(all, func(t *sdk.Tool) string { return t.Name }), err
}

// repair makes the schemas of a tool acceptable to clients: some of them refuse
// the whole list because of one schema that is not of type object, or invalid.
func repair(t *sdk.Tool) {
	const kind, object = "type", "object"
	output, _ := t.OutputSchema.(map[string]any)
	if repairSchema(output); output[kind] != object {
		t.OutputSchema = nil
	}
	input, _ := t.InputSchema.(map[string]any)
	repairSchema(input)
	types, _ := input[kind].([]any)
	if typed := input[kind]; input == nil || typed != nil && typed != object && !slices.Contains(types, any(object)) {
		input = map[string]any{}
	}
	input[kind] = object
	t.InputSchema = input
}

// call calls a tool by its name in the set. limit bounds the whole call.
func (s *set) call(
	ctx context.Context, p *Proxy, params *sdk.CallToolParams, limit time.Duration,
) (*sdk.CallToolResult, error) {
	ctx, leave, err := p.admitCall(ctx, limit)
	if err != nil {
		return nil, err
	}
	defer leave()
	r, tool, err := s.route(ctx, params.Name, func(ctx context.Context, r *runner, name string) bool {
		tools, err := r.tools(ctx)
		return err == nil && slices.ContainsFunc(tools, func(t *sdk.Tool) bool { return t.Name == name })
	})
	switch {
	case errors.Is(context.Cause(ctx), errLimit):
		return nil, fmt.Errorf("%q could be a tool of several MCP servers, and one of them did not list its tools within %v",
			params.Name, limit)
	case err != nil:
		return nil, fmt.Errorf("tool %w", err)
	}
	own := *params
	own.Name = tool
	return ask(ctx, r, limit, fmt.Sprintf("the call of %q", tool), func(ctx context.Context, p *process) (*sdk.CallToolResult, error) {
		raw, _ := ctx.Value(rawResultKey{}).(*rawResult)
		result, err := p.session.CallTool(ctx, &own)
		if err != nil {
			return nil, err
		}
		return result, restore(result, raw)
	})
}

// restore puts the original numbers into a result, and a list instead of null.
func restore(result *sdk.CallToolResult, raw *rawResult) error {
	if result.Content == nil {
		result.Content = []sdk.Content{}
	}
	if result.StructuredContent == nil {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw.text))
	decoder.UseNumber()
	var exact struct {
		StructuredContent any `json:"structuredContent"`
	}
	if err := decoder.Decode(&exact); err != nil {
		return fmt.Errorf("its answer cannot be decoded: %w", err)
	}
	result.StructuredContent = exact.StructuredContent
	return nil
}

// prompts lists the prompts of all servers that have some.
func (s *set) prompts(ctx context.Context, p *Proxy) ([]*sdk.Prompt, error) {
	all, err := gather(ctx, p, s, func(ctx context.Context, r *runner) ([]*sdk.Prompt, error) {
		list, err := r.prompts(ctx)
		return named(s, r, list, func(p *sdk.Prompt) *string { return &p.Name }), err
	})
	return distinct(all, func(p *sdk.Prompt) string { return p.Name }), err
}

func (s *set) prompt(ctx context.Context, p *Proxy, params *sdk.GetPromptParams) (*sdk.GetPromptResult, error) {
	ctx, leave, err := p.admitCall(ctx, CallTime)
	if err != nil {
		return nil, err
	}
	defer leave()
	r, name, err := s.route(ctx, params.Name, func(ctx context.Context, r *runner, name string) bool {
		prompts, err := r.prompts(ctx)
		return err == nil && slices.ContainsFunc(prompts, func(p *sdk.Prompt) bool { return p.Name == name })
	})
	if err != nil {
		return nil, fmt.Errorf("prompt %w", err)
	}
	own := &sdk.GetPromptParams{Name: name, Arguments: params.Arguments}
	return ask(ctx, r, CallTime, fmt.Sprintf("for the prompt %q", name), func(ctx context.Context, p *process) (*sdk.GetPromptResult, error) {
		return p.session.GetPrompt(ctx, own)
	})
}

// resources lists the resources of all servers that have some.
func (s *set) resources(ctx context.Context, p *Proxy) ([]*sdk.Resource, error) {
	return gather(ctx, p, s, func(ctx context.Context, r *runner) ([]*sdk.Resource, error) {
		list, err := list(ctx, r, "resources/list", hasResources, (*sdk.ClientSession).ListResources,
			func(cursor string) *sdk.ListResourcesParams { return &sdk.ListResourcesParams{Cursor: cursor} },
			func(page *sdk.ListResourcesResult) ([]*sdk.Resource, string) { return page.Resources, page.NextCursor })
		return located(s, r, list, func(r *sdk.Resource) *string { return &r.URI }), err
	})
}

// templates lists the resources whose addresses are patterns.
func (s *set) templates(ctx context.Context, p *Proxy) ([]*sdk.ResourceTemplate, error) {
	return gather(ctx, p, s, func(ctx context.Context, r *runner) ([]*sdk.ResourceTemplate, error) {
		list, err := list(ctx, r, "resources/templates/list", hasResources, (*sdk.ClientSession).ListResourceTemplates,
			func(cursor string) *sdk.ListResourceTemplatesParams {
				return &sdk.ListResourceTemplatesParams{Cursor: cursor}
			},
			func(page *sdk.ListResourceTemplatesResult) ([]*sdk.ResourceTemplate, string) {
				return page.ResourceTemplates, page.NextCursor
			})
		return located(s, r, list, func(t *sdk.ResourceTemplate) *string { return &t.URITemplate }), err
	})
}

func (s *set) resource(ctx context.Context, p *Proxy, params *sdk.ReadResourceParams) (*sdk.ReadResourceResult, error) {
	ctx, leave, err := p.admitCall(ctx, CallTime)
	if err != nil {
		return nil, err
	}
	defer leave()
	r, uri := s.locate(params.URI)
	if r == nil {
		return nil, sdk.ResourceNotFoundError(params.URI)
	}
	return ask(ctx, r, CallTime, "for a resource", func(ctx context.Context, p *process) (*sdk.ReadResourceResult, error) {
		return p.session.ReadResource(ctx, &sdk.ReadResourceParams{URI: uri})
	})
}

// gather asks all servers in parallel. It leaves out servers that fail, unless
// all fail. The result has the order of the servers.
func gather[T any](
	ctx context.Context, p *Proxy, s *set, ask func(ctx context.Context, r *runner) ([]T, error),
) ([]T, error) {
	select {
	case p.lists <- struct{}{}:
		defer func() { <-p.lists }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	lists, failures := make([][]T, len(s.runners)), make([]error, len(s.runners))
	var asking sync.WaitGroup
	for i, r := range s.runners {
		asking.Go(func() { lists[i], failures[i] = ask(ctx, r) })
	}
	asking.Wait()
	if err := errors.Join(failures...); err != nil && !slices.Contains(failures, nil) {
		return nil, err
	}
	return append([]T{}, slices.Concat(lists...)...), nil // a list, not null
}

// separator separates the name of a server from the name of its tool.
const separator = "_"

// named gives a server's items their names in the set. It leaves out names that
// cannot be shown.
func named[T any](s *set, r *runner, list []*T, name func(*T) *string) []*T {
	var shown []*T
	for _, item := range list {
		own := *item
		n := name(&own)
		if !presentable(*n) {
			continue
		}
		if len(s.runners) > 1 {
			*n = r.spec.Name + separator + *n
		}
		shown = append(shown, &own)
	}
	return shown
}

// distinct keeps one item of each name: the last one, whose server has the
// longer name, as in route.
func distinct[T any](list []T, name func(T) string) []T {
	last := map[string]int{}
	for i, item := range list {
		last[name(item)] = i
	}
	kept := []T{} // a list, not null
	for i, item := range list {
		if last[name(item)] == i {
			kept = append(kept, item)
		}
	}
	return kept
}

// presentable reports whether a name neither breaks a line nor fills a page.
func presentable(name string) bool {
	const most = 256 // twice the length that the protocol advises
	return name != "" && len(name) <= most && !strings.ContainsFunc(name, unicode.IsControl)
}

// route finds the server of a name in the set, and the item's own name. If a
// server's name begins with another's, has decides, for the longest name first.
func (s *set) route(
	ctx context.Context, name string, has func(ctx context.Context, r *runner, name string) bool,
) (*runner, string, error) {
	if len(s.runners) == 1 {
		return s.runners[0], name, nil
	}
	var found []*runner
	for _, r := range s.runners {
		if strings.HasPrefix(name, r.spec.Name+separator) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *runner) int { return len(b.spec.Name) - len(a.spec.Name) })
	for i, r := range found {
		own := strings.TrimPrefix(name, r.spec.Name+separator)
		if i == len(found)-1 || has(ctx, r, own) {
			return r, own, nil
		}
	}
	if len(s.runners) == 0 {
		return nil, "", fmt.Errorf("%q is unknown: no MCP servers are configured", name)
	}
	var names []string
	for _, r := range s.runners {
		names = append(names, r.spec.Name)
	}
	return nil, "", fmt.Errorf("%q is unknown: names begin with the name of a server and %q; the servers are %q", name,
		separator, names)
}

const schemeEnd = "://"

// located puts the name of the server in front of the addresses of resources.
// It leaves out invalid addresses.
func located[T any](s *set, r *runner, list []*T, uri func(*T) *string) []*T {
	var shown []*T
	for _, item := range list {
		own := *item
		u := uri(&own)
		scheme, rest, ok := strings.Cut(*u, schemeEnd)
		switch {
		case len(s.runners) == 1:
		case !ok:
			continue
		default:
			*u = scheme + schemeEnd + r.spec.Name + "/" + rest
		}
		shown = append(shown, &own)
	}
	return shown
}

// locate undoes located. It returns nil if the server does not exist.
func (s *set) locate(uri string) (*runner, string) {
	if len(s.runners) == 1 {
		return s.runners[0], uri
	}
	scheme, rest, _ := strings.Cut(uri, schemeEnd)
	name, rest, ok := strings.Cut(rest, "/")
	i := slices.IndexFunc(s.runners, func(r *runner) bool { return r.spec.Name == name })
	if !ok || i < 0 {
		return nil, ""
	}
	return s.runners[i], scheme + schemeEnd + rest
}

func hasTools(c *sdk.ServerCapabilities) bool     { return c.Tools != nil }
func hasPrompts(c *sdk.ServerCapabilities) bool   { return c.Prompts != nil }
func hasResources(c *sdk.ServerCapabilities) bool { return c.Resources != nil }

// tools lists the tools of a server, by its own names.
func (r *runner) tools(ctx context.Context) ([]*sdk.Tool, error) {
	return list(ctx, r, "tools/list", hasTools, (*sdk.ClientSession).ListTools,
		func(cursor string) *sdk.ListToolsParams { return &sdk.ListToolsParams{Cursor: cursor} },
		func(page *sdk.ListToolsResult) ([]*sdk.Tool, string) { return page.Tools, page.NextCursor })
}

func (r *runner) prompts(ctx context.Context) ([]*sdk.Prompt, error) {
	return list(ctx, r, "prompts/list", hasPrompts, (*sdk.ClientSession).ListPrompts,
		func(cursor string) *sdk.ListPromptsParams { return &sdk.ListPromptsParams{Cursor: cursor} },
		func(page *sdk.ListPromptsResult) ([]*sdk.Prompt, string) { return page.Prompts, page.NextCursor })
}

// maxListed and maxPages bound the list of a server.
const (
	maxListed = 1000
	maxPages  = 50
	// maxListBytes bounds it as JSON; the longest legitimate lists have some
	// hundred KiB.
	maxListBytes = 4 << 20
)

// listSize is the size of a server's list.
type listSize struct{ bytes, values int }

// add counts a page, and returns an error if the list is too long.
func (s *listSize) add(items any) error {
	text, err := json.Marshal(items)
	if err != nil {
		return err
	}
	s.bytes += len(text)
	s.values += values(text)
	switch {
	case s.bytes > maxListBytes:
		return fmt.Errorf("it lists more than %d MiB", maxListBytes>>20)
	case s.values > maxValues:
		return fmt.Errorf("it lists more than %d values", maxValues)
	}
	return nil
}

// list reads all pages of a list, if the server has such a list.
func list[T, P, R any](ctx context.Context, r *runner, what string, has func(*sdk.ServerCapabilities) bool,
	read func(*sdk.ClientSession, context.Context, P) (R, error), from func(cursor string) P, items func(R) (of []*T, next string),
) ([]*T, error) {
	return ask(ctx, r, r.proxy.listTime, what, func(ctx context.Context, p *process) ([]*T, error) {
		if can := p.session.InitializeResult().Capabilities; can == nil || !has(can) {
			return nil, nil
		}
		var all []*T
		var size listSize
		cursor := ""
		for range maxPages {
			page, err := read(p.session, ctx, from(cursor))
			if err != nil {
				return nil, err
			}
			of, next := items(page)
			if err := size.add(of); err != nil {
				return nil, err
			}
			all = append(all, slices.DeleteFunc(of, func(item *T) bool { return item == nil })...)
			if cursor = next; cursor == "" || len(all) >= maxListed {
				break
			}
		}
		return all[:min(len(all), maxListed)], nil
	})
}
