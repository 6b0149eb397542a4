// Package client speaks to one sandbox: it sends actions and files and gives
// back observations. It never sends an action a second time, because the
// sandbox would run it a second time.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
)

// ErrTooLarge says that an answer was longer than Config.MaxResponse.
var ErrTooLarge = errors.New("the answer is too large")

// defaultMaxResponse leaves room for a video in base64.
const defaultMaxResponse = 256 << 20

// maxErrorBody bounds what is read of a refusal.
const maxErrorBody = 64 << 10

// Config says which sandbox to speak to. Only BaseURL is required.
type Config struct {
	// BaseURL is "http://host:port", with a path where a gateway wants one, or
	// "unix:///path/of/socket".
	BaseURL string
	// Key is sent with every call; empty sends none.
	Key string
	// HTTPClient replaces the client's own connections, for instance where a
	// socket must be checked before it is trusted. BaseURL must not be a socket
	// then. Redirects are not followed whatever it says. Default: connections
	// of its own, kept alive, with the proxy of the environment for TCP.
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
}

// StatusError is an answer that is not a success.
type StatusError struct {
	// Status is the HTTP status.
	Status int
	// Detail is what the server said, "" where it said nothing.
	Detail string
}

// Error returns the status and the detail.
func (e *StatusError) Error() string {
	text := strconv.Itoa(e.Status) + " " + http.StatusText(e.Status)
	if e.Detail == "" {
		return text
	}
	return text + ": " + e.Detail
}

// New returns a client. It connects with the first call.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("base URL: %w", err)
	}
	c := &Client{key: cfg.Key, maxResponse: cfg.MaxResponse}
	if c.maxResponse <= 0 {
		c.maxResponse = defaultMaxResponse
	}
	transport := newTransport()
	switch {
	case base.Scheme == "unix" && cfg.HTTPClient != nil:
		return nil, fmt.Errorf("base URL %q: an HTTP client of yours dials for itself, give it an http URL", cfg.BaseURL)
	case base.Scheme == "unix" && base.Host == "" && strings.HasPrefix(base.Path, "/"):
		socket := base.Path
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}
		c.base = "http://sandbox"
	case (base.Scheme == "http" || base.Scheme == "https") && base.Host != "" && base.RawQuery == "" && base.Fragment == "":
		c.base = strings.TrimRight(base.String(), "/")
	default:
		return nil, fmt.Errorf("base URL %q: must be http://host:port, https://host or unix:///path", cfg.BaseURL)
	}
	c.http = &http.Client{Transport: transport}
	if cfg.HTTPClient != nil {
		own := *cfg.HTTPClient
		c.http = &own
	}
	// A redirect would send the action, and the key, to somebody else.
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
	}
}

// Close drops idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Do carries out one action and returns what came of it. ctx bounds the wait
// only: the command goes on when it ends. An action that was refused is a
// *StatusError and did not run; after any other error it may have run, and it
// is not sent again.
func (c *Client) Do(ctx context.Context, r api.Request) (api.Observation, error) {
	body, err := api.EncodeRequest(r)
	if err != nil {
		return nil, err
	}
	data, err := c.exchange(ctx, http.MethodPost, "/execute_action", "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	return api.DecodeObservation(data)
}

// Alive returns nil when the sandbox answers actions.
func (c *Client) Alive(ctx context.Context) error {
	_, err := c.exchange(ctx, http.MethodGet, "/alive", "", nil)
	return err
}

// Ready returns nil when the sandbox answers actions, or a *StatusError of 503
// whose detail names what it waits for.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.exchange(ctx, http.MethodGet, "/readyz", "", nil)
	return err
}

// ServerInfo returns what the server is, uses and can do.
func (c *Client) ServerInfo(ctx context.Context) (api.ServerInfo, error) {
	var info api.ServerInfo
	return info, c.get(ctx, "/server_info", &info)
}

// Claim binds a sandbox whose server waits for its owner. The same claim may be
// made again; a *StatusError of 409 says that somebody else was faster. Calls of
// this client carry the key that the client was made with.
func (c *Client) Claim(ctx context.Context, claim api.Claim) error {
	return c.post(ctx, "/v1/claim", claim, nil)
}

// Status returns how the sandbox is, and how long it will be.
func (c *Client) Status(ctx context.Context) (api.Life, error) {
	var life api.Life
	return life, c.get(ctx, "/v1/status", &life)
}

// Renew gives the sandbox a deadline, ttl from now; 0 means none. A part of a
// second counts as one.
func (c *Client) Renew(ctx context.Context, ttl time.Duration) (api.Life, error) {
	var life api.Life
	seconds := int((max(ttl, 0) + time.Second - 1) / time.Second)
	return life, c.post(ctx, "/v1/renew", api.Renewal{TTLSeconds: seconds}, &life)
}

// Tools returns the definitions of the tools that the sandbox has, as JSON: the
// member "tools" of a request to a model API. An empty dialect or format is the
// default one.
func (c *Client) Tools(ctx context.Context, dialect, format string) (json.RawMessage, error) {
	query := url.Values{}
	for name, value := range map[string]string{"dialect": dialect, "format": format} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var list struct {
		Tools json.RawMessage `json:"tools"`
	}
	err := c.get(ctx, "/v1/tools?"+query.Encode(), &list)
	return list.Tools, err
}

// CallTool carries out a tool call of a model and returns what came of it. What
// the model did wrong is an answer too. As with Do, ctx bounds the wait only,
// and a call is not sent again.
func (c *Client) CallTool(ctx context.Context, call api.ToolCall) (api.ToolAnswer, error) {
	body, err := api.EncodeToolCall(call)
	if err != nil {
		return api.ToolAnswer{}, err
	}
	data, err := c.exchange(ctx, http.MethodPost, "/v1/tools/call", "application/json", bytes.NewReader(body))
	if err != nil {
		return api.ToolAnswer{}, err
	}
	return api.DecodeToolAnswer(data)
}

// MCP sends a message of an MCP client to the sandbox's own tools, and returns
// the answer, which is empty for a notification. ctx bounds the wait only.
func (c *Client) MCP(ctx context.Context, dialect, session string, message []byte) (json.RawMessage, error) {
	query := url.Values{"dialect": {dialect}, "session": {session}}
	response, err := c.sendWith(ctx, mcpHeader(message), http.MethodPost, "/mcp?"+query.Encode(), "application/json", bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return c.whole(response.Body, "/mcp")
}

// mcpHeader is what the streamable HTTP transport wants of a message outside too:
// more in its revisions that have no handshake.
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
	err := c.get(ctx, "/v1/sessions", &list)
	return list.Sessions, err
}

// Session returns one session; "" is the default one. A *StatusError of 404 says
// that there is none of that name.
func (c *Client) Session(ctx context.Context, name string) (api.Session, error) {
	var s api.Session
	return s, c.get(ctx, sessionPath(name), &s)
}

// CloseSession ends the shell and the kernel of a session, and what runs in them;
// "" is the default one.
func (c *Client) CloseSession(ctx context.Context, name string) error {
	_, err := c.exchange(ctx, http.MethodDelete, sessionPath(name), "", nil)
	return err
}

func sessionPath(name string) string {
	if name == "" {
		name = "default"
	}
	return "/v1/sessions/" + url.PathEscape(name)
}

// ListFiles returns what is in a directory, directories first and with a slash
// at their end; nothing where there is no such directory. A relative path
// starts at the initial working directory, which is what "" means.
func (c *Client) ListFiles(ctx context.Context, path string) ([]string, error) {
	request := map[string]string{}
	if path != "" {
		request["path"] = path
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("listing %q: %w", path, err)
	}
	data, err := c.exchange(ctx, http.MethodPost, "/list_files", "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	var names []string
	if err := json.Unmarshal(data, &names); err != nil {
		return nil, fmt.Errorf("reading the answer of /list_files: %w", err)
	}
	return names, nil
}

// Upload puts what r holds into the directory destination, an absolute path,
// under the given name. A name that ends in ".zip" is unpacked there; with
// recursive it must.
func (c *Client) Upload(ctx context.Context, destination, name string, r io.Reader, recursive bool) (api.UploadResult, error) {
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
	data, err := c.exchange(ctx, http.MethodPost, "/upload_file?"+query.Encode(), w.FormDataContentType(), body)
	if err != nil {
		return api.UploadResult{}, err
	}
	var result api.UploadResult
	if err := json.Unmarshal(data, &result); err != nil {
		return api.UploadResult{}, fmt.Errorf("reading the answer of /upload_file: %w", err)
	}
	return result, nil
}

// Download returns the files below an absolute path as a zip archive, which
// the caller must close. ctx bounds the whole download.
func (c *Client) Download(ctx context.Context, path string) (io.ReadCloser, error) {
	query := url.Values{"path": {path}}
	response, err := c.send(ctx, http.MethodGet, "/download_files?"+query.Encode(), "", nil)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// get reads JSON into v.
func (c *Client) get(ctx context.Context, path string, v any) error {
	data, err := c.exchange(ctx, http.MethodGet, path, "", nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", path, err)
	}
	return nil
}

// post sends JSON and reads JSON into answer, unless that is nil.
func (c *Client) post(ctx context.Context, path string, v, answer any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("calling %s: %w", path, err)
	}
	data, err := c.exchange(ctx, http.MethodPost, path, "application/json", bytes.NewReader(body))
	if err != nil || answer == nil {
		return err
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("reading the answer of %s: %w", path, err)
	}
	return nil
}

// exchange sends a request and returns the whole answer.
func (c *Client) exchange(ctx context.Context, method, path, contentType string, body io.Reader) ([]byte, error) {
	response, err := c.send(ctx, method, path, contentType, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	return c.whole(response.Body, path)
}

// whole reads an answer to its end.
func (c *Client) whole(body io.Reader, path string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(body, c.maxResponse+1))
	if err != nil {
		return nil, fmt.Errorf("reading the answer of %s: %w", pathOnly(path), err)
	}
	if int64(len(data)) > c.maxResponse {
		return nil, fmt.Errorf("reading the answer of %s: %w", pathOnly(path), ErrTooLarge)
	}
	return data, nil
}

func pathOnly(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}

// send returns a successful answer whose body must be closed. Any other status
// is a *StatusError.
func (c *Client) send(ctx context.Context, method, path, contentType string, body io.Reader) (*http.Response, error) {
	return c.sendFor(ctx, "", method, path, contentType, body)
}

// sendFor is send that says in which form it wants the answer.
func (c *Client) sendFor(ctx context.Context, accept, method, path, contentType string, body io.Reader) (*http.Response, error) {
	header := http.Header{}
	if accept != "" {
		header.Set("Accept", accept)
	}
	return c.sendWith(ctx, header, method, path, contentType, body)
}

// sendWith is send with a header, which becomes the request's.
func (c *Client) sendWith(ctx context.Context, header http.Header, method, path, contentType string, body io.Reader) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("calling %s: %w", pathOnly(path), err)
	}
	request.Header = header
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	if c.key != "" {
		request.Header.Set(api.KeyHeader, c.key)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("calling %s: %w", pathOnly(path), err)
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err != nil { // the status says enough
		data = nil
	}
	return nil, &StatusError{Status: response.StatusCode, Detail: detail(data)}
}

// detail finds the server's words in the body of an answer that is no success.
func detail(body []byte) string {
	var said struct {
		Detail     string `json:"detail"`
		Errors     string `json:"errors"`
		Status     string `json:"status"`
		WaitingFor string `json:"waiting_for"`
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return strings.TrimSpace(string(body))
	}
	switch {
	case said.Errors != "":
		return said.Detail + ": " + said.Errors
	case said.Detail != "":
		return said.Detail
	case said.WaitingFor != "":
		return said.Status + ", waiting for " + said.WaitingFor
	}
	return said.Status
}
