package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/sandbox"
)

// A preview is a web application in a sandbox, reached through a tunnel to its port.
// It has two forms. The path form /sandboxes/{id}/ports/{port}/ is for programs: it has
// the origin of the gateway, so browsers may not run its scripts. The host form
// {port}-{id}.DOMAIN is for people: each preview has an origin of its own, on which the
// gateway's API does not answer.

// portsPath is between the sandbox's id and the port in the path form.
const portsPath = "ports/"

// publicLabel is the label that lists the ports whose preview hosts need no key,
// separated by commas, or by "_" where labels have no commas, as on Kubernetes.
const publicLabel = "public-ports"

var previewLabel = regexp.MustCompile(`^([0-9]{1,5})-([0-9a-f]{12})$`)

// previewDomain is the domain of preview hosts.
type previewDomain struct {
	name   string // in lower case
	port   string // of URLs; "": the port of the request
	scheme string
}

// newPreviewDomain parses DOMAIN or DOMAIN:PORT. The gateway's own host must not be in the
// domain.
func newPreviewDomain(text string, public *url.URL) (*previewDomain, error) {
	d := &previewDomain{name: strings.ToLower(strings.TrimSuffix(text, ".")), scheme: "http"}
	if host, port, err := net.SplitHostPort(d.name); err == nil {
		if _, err := api.ParsePort(port); err != nil {
			return nil, fmt.Errorf("preview domain %q: %w", text, err)
		}
		d.name, d.port = host, port
	}
	if !domainPattern.MatchString(d.name) || net.ParseIP(d.name) != nil {
		return nil, fmt.Errorf("preview domain %q: must be a name such as preview.example.com, optionally with a port", text)
	}
	if public != nil {
		d.scheme = public.Scheme
		if d.has(public.Host) {
			return nil, fmt.Errorf("preview domain %q: it contains the host of the public URL, and pages of sandboxes must not share a host with the gateway; use another domain", text)
		}
	}
	return d, nil
}

var domainPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// hostName returns the host of a Host header, in lower case, without its port.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// has reports whether a host is the domain or below it; the gateway's API must not answer
// there.
func (d *previewDomain) has(host string) bool {
	if d == nil {
		return false
	}
	name := hostName(host)
	return name == d.name || strings.HasSuffix(name, "."+d.name)
}

// sandbox returns the sandbox and the port that a host of the domain names.
func (d *previewDomain) sandbox(host string) (id string, port uint16, ok bool) {
	label, _ := strings.CutSuffix(hostName(host), "."+d.name)
	parts := previewLabel.FindStringSubmatch(label)
	if parts == nil {
		return "", 0, false
	}
	port, err := api.ParsePort(parts[1])
	return parts[2], port, err == nil
}

// admission is the right by which a request may use a preview.
type admission int

const (
	byKey admission = iota
	byURL
	byCookie
	byAnyone
)

// previewPath answers in the path form; rest is behind portsPath.
func (g *Gateway) previewPath(w http.ResponseWriter, r *http.Request, id, rest string) error {
	number, path, slash := strings.Cut(rest, "/")
	port, portErr := api.ParsePort(number)
	to, how, err := g.admitToPort(r, id, port, false)
	switch {
	case err != nil:
		w.Header().Set("Connection", "close") // most are unauthenticated
		return refusePreview(w, r, err)
	case portErr != nil:
		return portErr
	case r.Header.Get("Service-Worker") != "":
		return refuse(http.StatusForbidden, "A page of a sandbox cannot install a service worker here: start the gateway with --preview-domain")
	case !slash:
		return refuse(http.StatusNotFound, "The paths of a port begin with %s%s/%s%d/", proxyPrefix, id, portsPath, port)
	case leadsUp(path):
		return refuse(http.StatusBadRequest, "The path must not have . or .. between its slashes")
	}
	trustToPort(r)
	return g.passToPort(w, r, &destination{
		to: to, port: port, keyed: how == byKey, path: "/" + path, scheme: g.scheme(), host: r.Host, prefix: fmt.Sprintf("%s%s/%s%d", g.below, id, portsPath, port),
	})
}

// previewHost answers on a host of the preview domain.
func (g *Gateway) previewHost(w http.ResponseWriter, r *http.Request) error {
	id, port, named := g.preview.sandbox(r.Host)
	to, how, err := g.admitToPort(r, id, port, true)
	if err != nil || !named {
		w.Header().Set("Connection", "close")
	}
	switch {
	case !named:
		return refuse(http.StatusNotFound, "A preview is at PORT-ID.%s", g.preview.name)
	case err != nil:
		return refusePreview(w, r, err)
	case how == byCookie && foreignPage(r):
		return refuse(http.StatusForbidden, "This request comes from a web page of another origin")
	case how == byURL && navigates(r):
		g.enter(w, r, to, port)
		return nil
	}
	if how != byAnyone {
		trustToPort(r)
	}
	path := r.URL.EscapedPath()
	if !strings.HasPrefix(path, "/") { // OPTIONS *
		return refuse(http.StatusBadRequest, "The path must begin with a slash")
	}
	return g.passToPort(w, r, &destination{to: to, port: port, onHost: true, keyed: how == byKey, public: how == byAnyone, path: path, scheme: g.preview.scheme, host: r.Host})
}

// refusedPage is the page for people without access to a preview, whether the sandbox exists or not.
var refusedPage = httpserver.Home{
	Title: "This preview is not open to you",
	Text: "The link has run out, or it is not whole. Ask the person or the program that sent it for another one. " +
		"A preview also ends with its sandbox.",
}

// refusePreview answers a browser with a page instead of the refusal for programs.
func refusePreview(w http.ResponseWriter, r *http.Request, err error) error {
	if !errors.Is(err, errForbidden) || !navigates(r) {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	return refusedPage.Write(w, http.StatusForbidden)
}

// scheme returns the scheme of the public URL.
func (g *Gateway) scheme() string {
	scheme, _, found := strings.Cut(g.cfg.PublicURL, "://")
	if !found {
		return "http"
	}
	return scheme
}

// admitToPort returns the sandbox for a request that may use its port. Only the host form
// has cookies and public ports.
func (g *Gateway) admitToPort(r *http.Request, id string, port uint16, onHost bool) (*entry, admission, error) {
	to, err := g.admitTo(r, id, g.operatorHeader(r), r.Header.Values(api.KeyHeader)) // a bearer token is the application's
	if !errors.Is(err, errForbidden) {
		return to, byKey, err
	}
	if !sandbox.IsName(id) || port == 0 {
		return nil, 0, errForbidden
	}
	to, err = g.known.find(r.Context(), id, false)
	switch {
	case errors.Is(err, sandbox.ErrNotFound), errors.Is(err, sandbox.ErrAmbiguous):
		return nil, 0, errForbidden
	case err != nil:
		return nil, 0, err
	}
	valid := func(token string) bool { return g.validToken(to, port, token) }
	switch {
	case slices.ContainsFunc(r.URL.Query()[previewToken], valid):
		return to, byURL, nil
	case !onHost:
	case slices.ContainsFunc(r.CookiesNamed(previewToken), func(c *http.Cookie) bool { return valid(c.Value) }):
		return to, byCookie, nil
	case isPublic(to.current(), port):
		return to, byAnyone, nil
	}
	return nil, 0, errForbidden
}

// isPublic reports whether the creator of a sandbox made a port public.
func isPublic(s *sandbox.Sandbox, port uint16) bool {
	for text := range strings.FieldsFuncSeq(s.Labels[publicLabel], func(r rune) bool { return r == ',' || r == '_' }) {
		if number, err := api.ParsePort(strings.TrimSpace(text)); err == nil && number == port {
			return true
		}
	}
	return false
}

// foreignPage reports whether a page of another origin made a browser send the request:
// it must not use the person's cookie. Pages of two sandboxes are of one site, so
// SameSite does not separate them. Following a link is allowed.
func foreignPage(r *http.Request) bool {
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || !strings.EqualFold(u.Host, r.Host) {
			return true
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return r.Method != http.MethodGet || r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

// navigates reports whether a person's browser opens the address, and not a program.
func navigates(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("Upgrade") == "" && strings.Contains(r.Header.Get("Accept"), "text/html")
}

// enter turns the signature of an address into a cookie of the preview host, and removes
// it from the address, which pages can read and people copy.
func (g *Gateway) enter(w http.ResponseWriter, r *http.Request, to *entry, port uint16) {
	httpserver.Trust(r)
	token := ""
	for _, t := range r.URL.Query()[previewToken] {
		if g.validToken(to, port, t) {
			token = t
		}
	}
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // without TLS a browser keeps no secure cookie
		Name: previewToken, Value: token, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: g.preview.scheme == "https", Expires: tokenExpires(token),
	})
	// Not "//host", which would be another host.
	target := "/" + strings.TrimLeft(r.URL.EscapedPath(), "/")
	if query := withoutToken(r.URL.RawQuery); query != "" {
		target += "?" + query
	}
	h := w.Header()
	h.Set("Location", target)
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusSeeOther)
}

// passToPort sends a request on to a port.
func (g *Gateway) passToPort(w http.ResponseWriter, r *http.Request, d *destination) error {
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		return refuse(http.StatusMethodNotAllowed, "Method Not Allowed")
	}
	return g.forward(w, r, g.previews, d)
}

// maxPreview limits the lifetime of a signed address.
const maxPreview = 7 * 24 * time.Hour

// signPreview answers with a signed address, which needs no key.
func (g *Gateway) signPreview(w http.ResponseWriter, r *http.Request) error {
	port, err := api.ParsePort(r.PathValue("port"))
	if err != nil {
		return err
	}
	body, err := readJSON(w, r)
	if err != nil {
		return err
	}
	asked, err := api.DecodeRenewal(body)
	if err != nil {
		return err
	}
	life := time.Duration(asked.TTLSeconds) * time.Second
	if life <= 0 || life > maxPreview {
		return refuse(http.StatusBadRequest, "ttl_seconds must be from 1 to %d", maxPreview/time.Second)
	}
	s, err := g.asked(r)
	if err != nil {
		return err
	}
	key, err := s.Key()
	if err != nil {
		return err
	}
	expires := time.Now().Add(life).Truncate(time.Second)
	query := "/?" + previewToken + "=" + g.token(key, s.ID, port, expires)
	address := fmt.Sprintf("%s/%s%d", g.urlOf(r, s.ID), portsPath, port)
	if d := g.preview; d != nil {
		host := fmt.Sprintf("%d-%s.%s", port, s.ID, d.name)
		at := d.port
		if at == "" && g.cfg.PublicURL == "" {
			_, at, _ = net.SplitHostPort(r.Host) // empty: the scheme's
		}
		if at != "" {
			host += ":" + at
		}
		address = d.scheme + "://" + host
	}
	return writeJSON(w, http.StatusOK, api.PreviewURL{URL: address + query, Expires: expires.UTC()})
}
