package gateway

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
)

const (
	// maxPortConns limits the open connections to one port; further requests wait. A
	// sandbox has 64 tunnels for all of its clients.
	maxPortConns = 32
	// publicConns is the share of these tunnels for clients without a key, for all public
	// ports together; further requests of them wait.
	publicConns = 16
	// portIdleTime is short, because an open connection keeps a sandbox from being idle, and shorter than
	// applications keep one: gunicorn closes after 2 seconds, and a POST that meets the end is not sent again.
	portIdleTime = 1500 * time.Millisecond
	// maxAppHeader limits the header of an application's answer.
	maxAppHeader = 64 << 10
)

// newPortTransport returns connections to the ports of a sandbox, which dial opens. The
// port of a request's URL names the port.
func newPortTransport(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{
		DialContext:            dial,
		DisableCompression:     true,
		MaxConnsPerHost:        maxPortConns,
		MaxIdleConnsPerHost:    maxPortConns,
		IdleConnTimeout:        portIdleTime,
		MaxResponseHeaderBytes: maxAppHeader,
		ExpectContinueTimeout:  time.Second,
	}
}

func (s *entry) dialPort(ctx context.Context, _, address string) (net.Conn, error) {
	_, number, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := api.ParsePort(number)
	if err != nil {
		return nil, err
	}
	key, err := s.sessionKey()
	if err != nil {
		return nil, err
	}
	c, err := client.New(client.Config{BaseURL: "http://sandbox", Key: key, HTTPClient: &http.Client{Transport: s.transport}})
	if err != nil {
		return nil, err
	}
	tunnel, err := c.DialPort(ctx, port)
	if err != nil {
		return nil, err
	}
	return tunnel, nil
}

// dialPublicPort is dialPort within the share of clients without a key.
func (s *entry) dialPublicPort(ctx context.Context, network, address string) (net.Conn, error) {
	select {
	case s.public <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	release := sync.OnceFunc(func() { <-s.public })
	conn, err := s.dialPort(ctx, network, address)
	if err != nil {
		release()
		return nil, err
	}
	return &publicConn{conn, release}, nil
}

// publicConn is a connection that uses the share until it is closed.
type publicConn struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *publicConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// toPort sends a request to the port of its preview.
type toPort struct{}

// RoundTrip implements http.RoundTripper.
func (toPort) RoundTrip(r *http.Request) (*http.Response, error) {
	p := destinationOf(r.Context())
	ports := p.to.ports
	if p.public {
		ports = p.to.publicPorts
	}
	answer, err := ports.RoundTrip(withoutHooks(r))
	if err != nil {
		return nil, err
	}
	answer.Request = r // whose context knows the preview
	return answer, nil
}

func (g *Gateway) newPreviewProxy() *httputil.ReverseProxy {
	p := g.newProxy(notPassedToPort)
	p.Rewrite, p.Transport, p.ModifyResponse = g.rewriteForPort, toPort{}, answerOfPort
	return p
}

// rewriteForPort makes the request to the application. Its host is localhost, which
// development servers require. It has no key and no signature.
func (g *Gateway) rewriteForPort(r *httputil.ProxyRequest) {
	p := destinationOf(r.In.Context())
	out := r.Out
	path, _ := url.PathUnescape(p.path) // of a URL that was parsed
	out.URL = &url.URL{Scheme: "http", Host: p.origin(), Path: path, RawPath: p.path, RawQuery: withoutToken(r.In.URL.RawQuery)}
	out.Host = p.origin()
	h := out.Header
	for _, name := range []string{api.GatewayKeyHeader, api.KeyHeader, api.PrefixHeader} {
		h.Del(name)
	}
	h.Set("X-Forwarded-Host", p.host)
	h.Set("X-Forwarded-Proto", p.scheme)
	if referer := h.Get("Referer"); referer != "" {
		h.Del("Referer")
		if u, err := url.Parse(referer); err == nil {
			u.RawQuery = withoutToken(u.RawQuery)
			h.Set("Referer", u.String())
		}
	}
	if !p.onHost {
		h.Set(api.PrefixHeader, p.prefix)
		h.Del("Cookie")
		h.Del("Authorization")
		return
	}
	if u, err := url.Parse(h.Get("Origin")); err == nil && strings.EqualFold(u.Host, r.In.Host) {
		h.Set("Origin", "http://"+p.origin())
	}
	if cookies := withoutCookie(h["Cookie"]); cookies != "" {
		h.Set("Cookie", cookies)
	} else {
		h.Del("Cookie")
	}
	// A password is for a proxy in front of the gateway, and not for the application.
	scheme, token, _ := strings.Cut(h.Get("Authorization"), " ")
	session, err := p.to.sessionKey()
	if !strings.EqualFold(scheme, "Bearer") || err != nil || sameKey(token, g.key) || sameKey(token, sha256.Sum256([]byte(session))) {
		h.Del("Authorization")
	}
}

// withoutCookie returns the cookies of a request without those of previews.
func withoutCookie(lines []string) string {
	var kept []string
	for cookie := range strings.SplitSeq(strings.Join(lines, ";"), ";") {
		cookie = strings.TrimSpace(cookie)
		if name, _, _ := strings.Cut(cookie, "="); cookie != "" && strings.TrimSpace(name) != previewToken {
			kept = append(kept, cookie)
		}
	}
	return strings.Join(kept, "; ")
}

// ofThisHost returns a cookie of an answer without its domain, or "" for one of previews.
func ofThisHost(cookie string) string {
	parts := strings.Split(cookie, ";")
	if name, _, _ := strings.Cut(parts[0], "="); strings.TrimSpace(name) == previewToken {
		return ""
	}
	parts = slices.DeleteFunc(parts, func(part string) bool {
		name, _, _ := strings.Cut(part, "=")
		return strings.EqualFold(strings.TrimSpace(name), "Domain")
	})
	return strings.Join(parts, ";")
}

// origin is the host that the application has for itself.
func (p *destination) origin() string { return fmt.Sprintf("localhost:%d", p.port) }

// answerOfPort removes the headers of an answer that would apply beyond the preview.
func answerOfPort(r *http.Response) error {
	p := destinationOf(r.Request.Context())
	h := r.Header
	stripHostHeaders(r)
	cookies := h["Set-Cookie"]
	h.Del("Set-Cookie")
	if p.onHost {
		for _, c := range cookies {
			if own := ofThisHost(c); own != "" {
				h.Add("Set-Cookie", own)
			}
		}
	} else {
		h.Del("Service-Worker-Allowed")
		h.Add("Content-Security-Policy", "sandbox")
	}
	return p.redirect(r)
}

// redirect translates the address in a Location header into the client's URLs. A redirect to
// another host is an error if the client sent a key: most clients would send it there.
// With any other status the address is information: the request was carried out, and the
// answer is passed on, without an address that clients should not be led to.
func (p *destination) redirect(r *http.Response) error {
	location := r.Header.Get("Location")
	if location == "" {
		return nil
	}
	r.Header.Del("Location")
	redirects := r.StatusCode >= 300 && r.StatusCode < 400
	target, err := r.Request.URL.Parse(location)
	if err != nil {
		if redirects {
			return errors.New("it answered with a redirect that cannot be read")
		}
		return nil // the answer is good without that address
	}
	switch {
	case p.isOwn(target):
		path := target.EscapedPath()
		if strings.EqualFold(target.Host, p.host) { // an application that obeys the forwarded headers
			path = strings.TrimPrefix(path, p.prefix)
		}
		if leadsUp(path) { // encoded, which many clients take for directions, to paths of the gateway
			if !redirects {
				return nil
			}
			return fmt.Errorf("it answered with a redirect (%d) out of its own paths, which is not passed on", r.StatusCode)
		}
		path = p.prefix + "/" + strings.TrimLeft(path, "/")
		if target.RawQuery != "" {
			path += "?" + target.RawQuery
		}
		if target.Fragment != "" {
			path += "#" + target.EscapedFragment()
		}
		location = path
	case redirects && (!p.onHost || p.keyed):
		return fmt.Errorf("it answered with a redirect (%d) to another host, which is not passed on", r.StatusCode)
	}
	r.Header.Set("Location", location)
	return nil
}

// isOwn reports whether a URL leads to the application: by the preview's host, or by a name
// or an address that the application has for itself.
func (p *destination) isOwn(target *url.URL) bool {
	if strings.EqualFold(target.Host, p.host) {
		return true
	}
	port := target.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[target.Scheme]
	}
	if port != strconv.Itoa(int(p.port)) {
		return false
	}
	host := strings.TrimSuffix(target.Hostname(), ".")
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && (addr.Unmap().IsLoopback() || addr.Unmap().IsUnspecified())
}

// notPassedToPort is the refusal of a request that an application did not answer.
func notPassedToPort(r *http.Request, err error) error {
	ctx := r.Context()
	p := destinationOf(ctx)
	switch refused, ok := errors.AsType[*client.StatusError](err); {
	case errors.Is(context.Cause(ctx), errStopping):
		return errStopping
	case ctx.Err() != nil:
		return ctx.Err()
	case ok && (refused.Status == http.StatusForbidden || refused.Status == http.StatusTooManyRequests):
		return refuse(refused.Status, "%.256s", refused.Detail)
	case ok:
		return refuse(http.StatusBadGateway, "Sandbox %s: %.256s", p.to.current().ID, refused.Detail)
	}
	return refuse(http.StatusBadGateway, "Port %d of sandbox %s did not answer as it should: %.256v", p.port, p.to.current().ID, err)
}
