// Package client is a client of one sandbox: it sends actions and files and returns
// observations. After a broken connection it sends an action again with the same
// idempotency key, and the action never runs twice.
package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/actiond/actiond/api"
)

// ErrTooLarge reports that an answer was longer than its kind may be, or than
// Config.MaxResponse.
var ErrTooLarge = errors.New("the answer is too large")

// The bounds of answers, in bytes, by their kind. All others are observations,
// and bounded by Config.MaxResponse.
const (
	maxSmall  = 64 << 10 // a status, a result, a refusal
	maxInfo   = 1 << 20  // the server's description, its sessions
	maxTools  = 4 << 20  // definitions of tools
	maxNames  = 16 << 20 // the files of a directory
	maxOutput = 64 << 20 // a command's observation: a full screen, each character escaped
	// defaultMaxResponse is for a video in base64.
	defaultMaxResponse = 256 << 20
	maxHeader          = 64 << 10
)

// Config says which sandbox to speak to. Only BaseURL is required.
type Config struct {
	// BaseURL is "http://host:port", with a path where a gateway wants one, or
	// "unix:///path/of/socket".
	BaseURL string
	// Key is sent with every call; empty sends none.
	Key string
	// HTTPClient replaces the client's own connections, for instance to check a
	// socket before trusting it. BaseURL must not be a socket then. Its policy for
	// redirects is ignored: they are not followed. Default: connections of its own,
	// kept alive, with the proxy of the environment for TCP.
	HTTPClient *http.Client
	// MaxResponse bounds the bytes of an answer, downloads aside. Default 256 MiB.
	MaxResponse int64
}

// Client speaks to one sandbox. It may be used concurrently.
type Client struct {
	base        string
	key         string
	http        *http.Client
	maxResponse int64
	limits      limits
}

// StatusError is an answer that is not a success.
type StatusError struct {
	// Status is the HTTP status.
	Status int
	// Detail is the server's message, or "".
	Detail string
	// Code is a word for programs: the error of a file, of ErrorCode in openapi.yaml, or one
	// of the table in docs/reference/gateway.md; or "".
	Code string
	// Reason says why the sandbox ended, such as "deadline"; or "".
	Reason string
}

// maxDetail bounds the part of a detail that an error's text quotes, in bytes.
const maxDetail = 4 << 10

// Error returns the status and the detail on one line. It escapes invisible
// characters, because the server may be an attacker's.
func (e *StatusError) Error() string {
	text := strconv.Itoa(e.Status) + " " + http.StatusText(e.Status)
	if e.Detail == "" {
		return text
	}
	detail, end := e.Detail, ""
	if len(detail) > maxDetail {
		detail, end = detail[:maxDetail], "..."
	}
	return text + ": " + oneLine(detail) + end
}

// oneLine escapes invisible characters, line ends included.
func oneLine(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], string(utf8.RuneError)):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.IsGraphic(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

// New returns a client. It connects with the first call.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("base URL: %w", err)
	}
	c := &Client{key: cfg.Key, maxResponse: cfg.MaxResponse, limits: defaultLimits}
	if c.maxResponse <= 0 {
		c.maxResponse = defaultMaxResponse
	}
	transport := newTransport()
	switch {
	case base.Scheme == "unix" && cfg.HTTPClient != nil:
		return nil, fmt.Errorf("base URL %q: Config.HTTPClient dials for itself: use an http URL with it", cfg.BaseURL)
	case base.Scheme == "unix" && base.Host == "" && strings.HasPrefix(base.Path, "/"):
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", base.Path)
		}
		c.base = "http://sandbox"
	case (base.Scheme == "http" || base.Scheme == "https") && base.Host != "" && base.RawQuery == "" &&
		base.Fragment == "":
		c.base = strings.TrimRight(base.String(), "/")
	default:
		return nil, fmt.Errorf("base URL %q: must be http://host:port, https://host or unix:///path", cfg.BaseURL)
	}
	c.http = &http.Client{Transport: transport}
	if cfg.HTTPClient != nil {
		c.http = new(*cfg.HTTPClient)
	}
	// A redirect would send the action and the key to another server.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// newTransport has the settings of http.DefaultTransport, with more idle
// connections for one host, as sessions work in parallel.
func newTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,

		MaxResponseHeaderBytes: maxHeader,
	}
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do runs one action and returns its observation. ctx bounds the wait only: the
// command keeps running when ctx ends. A refusal is a *StatusError of 4xx, apart from 408
// and 499, and the action did not run. The idempotency key is r.Key, or a random one: after
// the connection broke the action is sent again, and does not run again. The error is
// ErrUnknown, with an observation, if the server died while the action ran; after any other
// error it may have run.
func (c *Client) Do(ctx context.Context, r api.Request) (api.Observation, error) {
	body, err := api.EncodeRequest(r)
	if err != nil {
		return nil, err
	}
	var o api.Observation
	err = c.once(ctx, r.Key, new(uint64), func(header http.Header) error {
		data, err := c.exchange(ctx, header, http.MethodPost, "/execute_action", "application/json", bytes.NewReader(body),
			c.maxAnswer(r))
		if err == nil {
			o, err = api.DecodeObservation(data)
		}
		return err
	})
	return known(o, err)
}

// maxAnswer bounds the answer to an action.
func (c *Client) maxAnswer(r api.Request) int64 {
	if _, ok := r.Action.(api.RunAction); ok {
		return min(c.maxResponse, maxOutput)
	}
	return c.maxResponse
}

// Alive returns nil when the sandbox answers actions.
func (c *Client) Alive(ctx context.Context) error {
	return c.get(ctx, "/alive", nil, maxSmall)
}

// Ready returns nil when the sandbox answers actions, or a *StatusError of 503
// whose detail names the missing part.
func (c *Client) Ready(ctx context.Context) error {
	return c.get(ctx, "/readyz", nil, maxSmall)
}

// ServerInfo returns the server's version, resource usage and capabilities.
func (c *Client) ServerInfo(ctx context.Context) (api.ServerInfo, error) {
	var info api.ServerInfo
	return info, c.get(ctx, "/server_info", &info, maxInfo)
}

// Claim binds a sandbox to its owner. The same claim may be repeated; a *StatusError of 409
// says that another client claimed the sandbox first. Calls of this client still carry
// Config.Key.
func (c *Client) Claim(ctx context.Context, claim api.Claim) error {
	return c.post(ctx, "/v1/claim", claim, nil)
}

// Status returns the state of the sandbox and its deadline.
func (c *Client) Status(ctx context.Context) (api.Life, error) {
	var life api.Life
	return life, c.get(ctx, "/v1/status", &life, maxSmall)
}

// Usage returns the resource usage of all processes of the sandbox.
func (c *Client) Usage(ctx context.Context) (api.Usage, error) {
	var u api.Usage
	return u, c.get(ctx, "/v1/usage", &u, maxSmall)
}

// Network returns the network policy of the sandbox, and the latest denials; a *StatusError of
// 409 says that it has none.
func (c *Client) Network(ctx context.Context) (api.NetworkState, error) {
	var state api.NetworkState
	return state, c.get(ctx, "/v1/network", &state, maxInfo)
}

// Renew gives the sandbox a deadline, ttl from now; 0 means none. A part of a
// second counts as one. The error is a *StatusError of 409 for a server whose driver keeps
// the deadline.
func (c *Client) Renew(ctx context.Context, ttl time.Duration) (api.Life, error) {
	return c.RenewByTicket(ctx, "", ttl)
}

// RenewByTicket is Renew for a driver, which has the ticket of the sandbox's claim.
func (c *Client) RenewByTicket(ctx context.Context, ticket string, ttl time.Duration) (life api.Life, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.limits.quick, ErrNoAnswer)
	defer cancel()
	body := fmt.Sprintf(`{"ttl_seconds":%d}`, int((max(ttl, 0)+time.Second-1)/time.Second))
	data, err := c.exchange(ctx, http.Header{api.TicketHeader: {ticket}}, http.MethodPost, "/v1/renew", "application/json", strings.NewReader(body), maxSmall)
	if err == nil {
		err = json.Unmarshal(data, &life)
	}
	return life, err
}

// Tools returns the definitions of the tools that the sandbox has, as JSON: the
// member "tools" of a request to a model API. An empty dialect or format is the
// default one.
func (c *Client) Tools(ctx context.Context, dialect, format string) (json.RawMessage, error) {
	query := queryOf(map[string]string{"dialect": dialect, "format": format})
	var list struct {
		Tools json.RawMessage `json:"tools"`
	}
	err := c.get(ctx, "/v1/tools?"+query.Encode(), &list, maxTools)
	return list.Tools, err
}

// CallTool runs a tool call of a model and returns its result. A mistake of the model
// is a result too. As with Do, ctx bounds the wait only, and the call runs once.
func (c *Client) CallTool(ctx context.Context, call api.ToolCall) (api.ToolAnswer, error) {
	body, err := api.EncodeToolCall(call)
	if err != nil {
		return api.ToolAnswer{}, err
	}
	var a api.ToolAnswer
	err = c.once(ctx, "", new(uint64), func(header http.Header) error {
		data, err := c.exchange(ctx, header, http.MethodPost, "/v1/tools/call", "application/json", bytes.NewReader(body),
			c.maxResponse)
		if err == nil {
			a, err = api.DecodeToolAnswer(data)
		}
		return err
	})
	_, err = known(a.Observation, err)
	return a, err
}

// MCP sends a message of an MCP client to the sandbox's own tools, and calls tell with each
// message of the answer: notifications about a call, then its result, and nothing for a
// notification. id, unless it is empty, is the idempotency key of a tool call. The end of
// ctx also ends the action if id is empty and the message has revision 2026-07-28 or later.
func (c *Client) MCP(
	ctx context.Context, dialect, session, id string, message []byte, tell func(json.RawMessage),
) error {
	query := url.Values{"dialect": {dialect}, "session": {session}}
	header := mcpHeader(message)
	if id != "" {
		header.Set(api.IdentityHeader, id)
	}
	answer, err := c.send(ctx, header, http.MethodPost, "/mcp?"+query.Encode(), "application/json",
		bytes.NewReader(message))
	if err != nil {
		return err
	}
	if kind, _, _ := mime.ParseMediaType(answer.header.Get("Content-Type")); kind == "text/event-stream" {
		return answer.mcpEvents(c.maxResponse, tell)
	}
	whole, err := answer.whole(c.maxResponse)
	if err == nil && len(whole) > 0 {
		tell(whole)
	}
	return err
}

// mcpEvents reads the messages in an event stream up to the result, and closes the answer.
func (a *answer) mcpEvents(most int64, tell func(json.RawMessage)) error {
	defer func() { _ = a.Close() }()
	lines := bufio.NewReaderSize(a, 64<<10)
	for {
		line, err := a.line(lines, most)
		if err != nil {
			return fmt.Errorf("reading the answer of %s: %w", a.path, a.cause(err))
		}
		message, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:"))
		if !ok {
			continue
		}
		var m struct {
			Method string `json:"method"`
		}
		if err := json.Unmarshal(message, &m); err != nil {
			return fmt.Errorf("reading the answer of %s: %w", a.path, err)
		}
		if tell(message); m.Method == "" {
			return nil
		}
	}
}

// mcpHeader returns the header that the streamable HTTP transport requires, which repeats
// parts of the message in the revisions without a handshake.
func mcpHeader(message []byte) http.Header {
	header := http.Header{"Accept": {"application/json, text/event-stream"}}
	var m struct {
		Method string `json:"method"`
		Params struct {
			Name string `json:"name"`
			Meta struct {
				Version string `json:"io.modelcontextprotocol/protocolVersion"`
			} `json:"_meta"`
		} `json:"params"`
	}
	if err := json.Unmarshal(message, &m); err != nil || m.Params.Meta.Version == "" {
		return header
	}
	header.Set("Mcp-Protocol-Version", m.Params.Meta.Version)
	header.Set("Mcp-Method", m.Method)
	if m.Params.Name != "" {
		header.Set("Mcp-Name", m.Params.Name)
	}
	return header
}

// Sessions returns the sessions of the sandbox, by name.
func (c *Client) Sessions(ctx context.Context) ([]api.Session, error) {
	var list api.SessionList
	err := c.get(ctx, "/v1/sessions", &list, maxInfo)
	return list.Sessions, err
}

// Session returns one session; "" is the default one. If it does not exist, the error is
// a *StatusError of 404.
func (c *Client) Session(ctx context.Context, name string) (api.Session, error) {
	var s api.Session
	return s, c.get(ctx, sessionPath(name), &s, maxSmall)
}

// CloseSession ends the shell and the kernel of a session with their processes; "" is
// the default one.
func (c *Client) CloseSession(ctx context.Context, name string) error {
	return c.quick(ctx, http.MethodDelete, sessionPath(name), nil, nil, maxSmall)
}

func sessionPath(name string) string {
	return "/v1/sessions/" + url.PathEscape(cmp.Or(name, "default"))
}

// ListFiles returns the names in a directory, directories first and with a slash at their
// end, or nothing if the directory does not exist. A relative path starts at the initial
// working directory, and "" is that directory.
func (c *Client) ListFiles(ctx context.Context, path string) ([]string, error) {
	request := map[string]string{}
	if path != "" {
		request["path"] = path
	}
	var names []string
	err := c.quick(ctx, http.MethodPost, "/list_files", request, &names, maxNames)
	return names, err
}

// Upload writes the content of r to a file of the given name in the directory
// destination, an absolute path. An archive whose name ends in ".zip" is unpacked there;
// recursive requires one.
func (c *Client) Upload(
	ctx context.Context, destination, name string, r io.Reader, recursive bool,
) (api.UploadResult, error) {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	if _, err := w.CreateFormFile("file", name); err != nil {
		return api.UploadResult{}, fmt.Errorf("uploading %q: %w", name, err)
	}
	head := bytes.Clone(form.Bytes())
	form.Reset()
	if err := w.Close(); err != nil {
		return api.UploadResult{}, fmt.Errorf("uploading %q: %w", name, err)
	}
	query := url.Values{"destination": {destination}, "recursive": {strconv.FormatBool(recursive)}}
	body := io.MultiReader(bytes.NewReader(head), r, &form)
	var result api.UploadResult
	return result, c.upload(ctx, "/upload_file?"+query.Encode(), w.FormDataContentType(), body, &result)
}

// Unpack extracts a tar archive into a directory, an absolute path, as the sandbox's user,
// and returns the number of entries. The archive is streamed. Files that were extracted
// before an error stay.
func (c *Client) Unpack(ctx context.Context, directory string, archive io.Reader) (entries int, err error) {
	query := url.Values{"path": {directory}}
	var result api.Unpacked
	err = c.upload(ctx, "/v1/unpack?"+query.Encode(), "application/x-tar", archive, &result)
	return result.Entries, err
}

// Pack returns a file, a link, or a directory with its contents, by an absolute path, as a
// tar archive. The sandbox may have forged it. The caller must close it. ctx bounds the
// reading too.
func (c *Client) Pack(ctx context.Context, path string) (io.ReadCloser, error) {
	return c.open(ctx, "/v1/pack?"+url.Values{"path": {path}}.Encode())
}

// ListOptions are the options of [Client.ListDirectory].
type ListOptions struct {
	// Recursive lists the entries of the directories below, too.
	Recursive bool
	// Limit bounds the entries of the page; 0 is the sandbox's bound of 1,000.
	Limit int
	// After is the Next of the page before.
	After string
}

// ListDirectory returns a page of the names in a directory, which is absolute or below the
// working directory. Names are the sandbox's: they are no paths for this machine. If the
// directory does not exist, the error is a *StatusError of 404.
func (c *Client) ListDirectory(ctx context.Context, directory string, o ListOptions) (api.Listed, error) {
	query := queryOf(map[string]string{"path": directory, "after": o.After})
	if o.Recursive {
		query.Set("recursive", "true")
	}
	if o.Limit > 0 {
		query.Set("limit", strconv.Itoa(o.Limit))
	}
	var page api.Listed
	return page, c.get(ctx, "/v1/list?"+query.Encode(), &page, maxNames)
}

// Download returns the files below an absolute path as a zip archive, which
// the caller must close. ctx bounds the whole download.
func (c *Client) Download(ctx context.Context, path string) (io.ReadCloser, error) {
	return c.open(ctx, "/download_files?"+url.Values{"path": {path}}.Encode())
}

// open returns the body of an answer, which must be closed.
func (c *Client) open(ctx context.Context, path string) (io.ReadCloser, error) {
	answer, err := c.send(ctx, nil, http.MethodGet, path, "", nil)
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// get reads JSON into v, unless that is nil, in a quick call.
func (c *Client) get(ctx context.Context, path string, v any, most int64) error {
	return c.quick(ctx, http.MethodGet, path, nil, v, most)
}

// post sends JSON and reads JSON into answer, unless that is nil, in a quick call.
func (c *Client) post(ctx context.Context, path string, v, answer any) error {
	return c.quick(ctx, http.MethodPost, path, v, answer, maxSmall)
}

// quick is for requests that every server answers at once: it fails with ErrNoAnswer
// after a minute. It sends v as JSON, unless that is nil, and reads most bytes of
// JSON into answer, unless that is nil.
func (c *Client) quick(ctx context.Context, method, path string, v, answer any, most int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.limits.quick, ErrNoAnswer)
	defer cancel()
	var body io.Reader
	contentType := ""
	if v != nil {
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("calling %s: %w", pathOnly(path), err)
		}
		body, contentType = bytes.NewReader(data), "application/json"
	}
	return c.call(ctx, method, path, contentType, body, answer, most)
}

// upload posts a body of any length, and reads JSON into answer.
func (c *Client) upload(ctx context.Context, path, contentType string, body io.Reader, answer any) error {
	return c.call(ctx, http.MethodPost, path, contentType, body, answer, maxSmall)
}

// call sends a request and reads most bytes of JSON into answer, unless that is nil.
func (c *Client) call(
	ctx context.Context, method, path, contentType string, body io.Reader, answer any, most int64,
) error {
	data, err := c.exchange(ctx, nil, method, path, contentType, body, min(most, c.maxResponse))
	if err != nil || answer == nil {
		return err
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", pathOnly(path), err)
	}
	return nil
}

// exchange sends a request and returns the whole answer, of most bytes.
func (c *Client) exchange(
	ctx context.Context, header http.Header, method, path, contentType string, body io.Reader, most int64,
) ([]byte, error) {
	answer, err := c.send(ctx, header, method, path, contentType, body)
	if err != nil {
		return nil, err
	}
	return answer.whole(most)
}

// queryOf returns the parameters that are not empty.
func queryOf(all map[string]string) url.Values {
	query := url.Values{}
	for name, value := range all {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

func pathOnly(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}

// send returns a successful answer, which must be closed. Any other status is a *StatusError.
// header becomes the request's, unless it is nil.
func (c *Client) send(
	ctx context.Context, header http.Header, method, path, contentType string, body io.Reader,
) (*answer, error) {
	ctx, p := c.limits.pace(ctx)
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		p.end()
		return nil, fmt.Errorf("calling %s: %w", pathOnly(path), err)
	}
	if header != nil {
		request.Header = header
	}
	if header.Get(api.IdentityHeader) != "" {
		request.GetBody = nil // otherwise the transport sends it again, perhaps to another server
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	if c.key != "" {
		request.Header.Set(api.KeyHeader, c.key)
	}
	response, err := c.http.Do(request) //nolint:bodyclose // the answer's Close does
	if err != nil {
		p.end()
		return nil, fmt.Errorf("calling %s: %w", pathOnly(path), causeOf(ctx, err))
	}
	p.rest()
	a := &answer{ReadCloser: response.Body, path: pathOnly(path), header: response.Header, ctx: ctx, pace: p}
	if response.StatusCode/100 == 2 {
		return a, nil
	}
	data, err := a.whole(maxSmall)
	if err != nil { // the status says enough
		data = nil
	}
	return nil, refusal(response.StatusCode, data)
}

// refusal returns the error of an answer that is not a success, from its body.
func refusal(status int, body []byte) *StatusError {
	var said struct {
		Detail     string          `json:"detail"`
		Errors     json.RawMessage `json:"errors"`
		Code       string          `json:"code"`
		Reason     string          `json:"reason"`
		Status     string          `json:"status"`
		WaitingFor string          `json:"waiting_for"`
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return &StatusError{Status: status, Detail: strings.TrimSpace(string(body))}
	}
	e := &StatusError{Status: status, Detail: said.Detail, Code: said.Code, Reason: said.Reason}
	var text string // the legacy protocol's
	var faults []api.Fault
	switch {
	case json.Unmarshal(said.Errors, &text) == nil && text != "":
		e.Detail += ": " + text
	case json.Unmarshal(said.Errors, &faults) == nil && len(faults) > 0:
		e.Code = faults[0].Code
	case e.Detail == "" && said.WaitingFor != "":
		e.Detail = said.Status + ", waiting for " + said.WaitingFor
	case e.Detail == "":
		e.Detail = said.Status
	}
	return e
}
