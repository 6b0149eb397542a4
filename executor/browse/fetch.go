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
	"time"
	"unicode/utf8"

	"github.com/actiond/actiond/executor/nowait"
)

const (
	// fetchLimit bounds a fetch without a browser.
	fetchLimit = 30 * time.Second
	// maxBody is what is read of an answer.
	maxBody      = 2 << 20
	maxRedirects = 10
)

// Fetch gets a page without a browser: no scripts run, nothing is remembered, and
// there is no tree and no picture. It opens its connections and files with the
// rights of cfg.User, so that what the kernel keeps from that user is kept from
// it. What goes wrong is told in the page.
func Fetch(ctx context.Context, cfg Config, address string, timeout time.Duration) Page {
	if cfg.As == nil {
		cfg.As = func(work func() error) error { return work() }
	}
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
	return cfg.As(func() error {
		f, err := nowait.Open(path)
		if errors.Is(err, nowait.ErrNotRegular) {
			return fail("Error", "%s is not a regular file", path)
		}
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		in, err := nowait.Reader(f)
		if err != nil {
			return err
		}
		return p.take(in, mime.TypeByExtension(filepath.Ext(path)))
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
		Proxy: http.ProxyFromEnvironment, DialContext: dialer(cfg), DisableKeepAlives: true, MaxResponseHeaderBytes: 256 << 10,
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

// dialer opens connections, those to name servers too, with the user's rights: a
// socket belongs to the user who made it, and rules of the firewall ask for that.
func dialer(cfg *Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	asUser := func(d net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
		return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = cfg.As(func() (err error) {
				conn, err = d.DialContext(ctx, network, address)
				return err
			})
			return conn, err
		}
	}
	// Addresses are tried one after the other: a second goroutine would not have
	// the user's rights.
	resolver := &net.Resolver{PreferGo: true, Dial: asUser(net.Dialer{FallbackDelay: -1})}
	return asUser(net.Dialer{FallbackDelay: -1, Resolver: resolver})
}

// take reads what there is to read as text.
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
		p.Text = shorten(md, maxText)
	case strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "json") || strings.HasSuffix(kind, "xml") || strings.HasSuffix(kind, "javascript"):
		p.Text = shorten(content, maxText)
	default:
		return fail("Error", "this is %s, which cannot be shown as text without a browser; fetch it with a command such as curl", clip(kind, 100))
	}
	return nil
}

// decode makes text of bytes: UTF-8, or the Latin alphabet in its oldest form.
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
