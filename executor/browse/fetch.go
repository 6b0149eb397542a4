package browse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/net/http/httpproxy"

	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/shorten"
)

const (
	// fetchLimit bounds a fetch without a browser.
	fetchLimit = 30 * time.Second
	// maxBody is the size of the part of an answer that is read, in bytes.
	maxBody      = 2 << 20
	maxRedirects = 10
)

// Fetch gets a page without a browser: no scripts, cookies, tree or screenshot.
// It opens connections and files with the rights of cfg.User, so that the
// kernel's rules for that user apply. Errors are in the page.
func Fetch(ctx context.Context, cfg Config, address string, timeout time.Duration) Page {
	limit := fetchLimit
	if timeout > 0 {
		limit = min(limit, timeout)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fail("TimeoutError", "no answer within %v", limit))
	defer cancel()
	page := Page{URL: address, OpenPages: []string{address}}
	var err error
	if path, ok := strings.CutPrefix(address, "file://"); ok {
		err = page.readFile(&cfg, path)
	} else {
		err = page.fetch(ctx, &cfg, address)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		page.Error = context.Cause(ctx).Error()
	case errors.As(err, new(*failure)):
		page.Error = err.Error()
	default:
		page.Error = "Error: " + err.Error()
	}
	page.OpenPages[0] = page.URL
	return page
}

func (p *Page) readFile(cfg *Config, path string) error {
	if unescaped, err := url.PathUnescape(path); err == nil {
		path = unescaped
	}
	return cfg.User.Do(func() error {
		f, err := files.OpenNonBlocking(path)
		if errors.Is(err, files.ErrNotRegular) {
			return fail("Error", "%s is not a regular file", path)
		}
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		return p.take(files.NonBlockingReader(f), mime.TypeByExtension(filepath.Ext(path)))
	})
}

func (p *Page) fetch(ctx context.Context, cfg *Config, address string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	if request.URL.Scheme != "http" && request.URL.Scheme != "https" || request.URL.Host == "" {
		return fail("Error", "%s is not an address of the form http://… or https://…", repr(clip(address, 200)))
	}
	request.Header.Set("User-Agent", "actiond")
	request.Header.Set("Accept", "text/html, text/plain, */*;q=0.5")
	transport := &http.Transport{
		Proxy: proxyOf(cfg.Env), DialContext: dialer(cfg), DisableKeepAlives: true, MaxResponseHeaderBytes: 256 << 10,
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(_ *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("more than %d redirects", maxRedirects)
		}
		return nil
	}}
	response, err := client.Do(request)
	if err != nil {
		op, ok := errors.AsType[*net.OpError](err)
		p.Unreached = ok && op.Op == "dial"
		p.Refused = p.Unreached && errors.Is(err, syscall.ECONNREFUSED)
		return err
	}
	defer func() { _ = response.Body.Close() }()
	p.URL = response.Request.URL.String()
	if err := p.take(response.Body, response.Header.Get("Content-Type")); err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		return fail("Error", "the server answered %s", response.Status)
	}
	return nil
}

// proxyOf returns the proxy that an environment names, as programs with that environment use it.
func proxyOf(env []string) func(*http.Request) (*url.URL, error) {
	get := func(name string) string {
		value := ""
		for _, v := range env {
			if n, text, _ := strings.Cut(v, "="); strings.EqualFold(n, name) && (value == "" || n == name) {
				value = text
			}
		}
		return value
	}
	config := httpproxy.Config{HTTPProxy: get("http_proxy"), HTTPSProxy: get("https_proxy"), NoProxy: get("no_proxy")}
	proxy := config.ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return proxy(r.URL) }
}

// dialer opens connections, including those to name servers, with the user's
// rights: a socket belongs to the user who made it, and firewall rules depend
// on that.
func dialer(cfg *Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	asUser := func(d net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
		return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = cfg.User.Do(func() (err error) {
				conn, err = d.DialContext(ctx, network, address)
				return err
			})
			return conn, err
		}
	}
	// Addresses are tried one after the other: a second goroutine would not
	// have the user's rights.
	resolver := &net.Resolver{PreferGo: true, Dial: asUser(net.Dialer{FallbackDelay: -1})}
	return asUser(net.Dialer{FallbackDelay: -1, Resolver: resolver})
}

// take reads the answer as text.
func (p *Page) take(in io.Reader, contentType string) error {
	data, err := io.ReadAll(io.LimitReader(in, maxBody+1))
	if err != nil {
		return err
	}
	if len(data) > maxBody {
		data = data[:maxBody]
		p.Notes = append(p.Notes, fmt.Sprintf("The page is longer than %d bytes; this is its beginning", maxBody))
	}
	kind, parameters, _ := mime.ParseMediaType(contentType)
	if kind == "" {
		kind, _, _ = mime.ParseMediaType(http.DetectContentType(data))
	}
	content := decode(data, parameters["charset"])
	switch {
	case kind == "text/html" || kind == "application/xhtml+xml":
		md, err := toMarkdown(content)
		if err != nil {
			return fail("Error", "the page cannot be converted: %v", err)
		}
		p.Text = shorten.Middle(md, maxText/2, maxText/2, shortened)
	case strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "json") || strings.HasSuffix(kind, "xml") ||
		strings.HasSuffix(kind, "javascript"):
		p.Text = shorten.Middle(content, maxText/2, maxText/2, shortened)
	default:
		return fail("Error", "this is %s, which cannot be shown as text without a browser; fetch it with a command such as curl", clip(kind, 100))
	}
	return nil
}

// decode decodes UTF-8 or Latin-1.
func decode(data []byte, charset string) string {
	if charset = strings.ToLower(charset); !utf8.Valid(data) && (charset == "iso-8859-1" || charset == "windows-1252") {
		var out strings.Builder
		for _, b := range data {
			out.WriteRune(rune(b))
		}
		return out.String()
	}
	return strings.ToValidUTF8(string(data), "�")
}
