package front

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/actiond/actiond/egress"
)

// Limits of the answers of the egress proxy.
const (
	maxAnswer  = 16 << 10 // bytes of the header and the text of a refusal
	maxPolicy  = 2 * egress.MaxPolicy
	maxDenied  = 1 << 20 // bytes of a list of denials
	askTime    = 5 * time.Second
	answerTime = 20 * time.Second // to look a host up and to connect take at most 15
)

// refusal is the answer to a client whose connection was not opened.
type refusal struct {
	status     int
	denied     string // the reason of a denial, otherwise ""
	retryAfter string
	text       string
}

func (r *refusal) Error() string { return r.text }

var errDown = &refusal{status: http.StatusServiceUnavailable, retryAfter: "1", text: "the egress proxy does not answer\n"}

// egressClient speaks to the egress proxy.
type egressClient struct {
	network, address string
	token            string       // a header with its line end, or ""
	last             atomic.Int64 // number of a connection
}

// newEgressClient returns a client whose connections do not have the numbers of those before a
// restart, which the egress proxy remembers.
func newEgressClient(cfg *Config) *egressClient {
	e := &egressClient{network: "unix", address: cfg.Socket}
	if cfg.Token != "" {
		e.network, e.address, e.token = "tcp", cfg.Remote, egress.HeaderToken+": Bearer "+cfg.Token+"\r\n"
	}
	e.last.Store(rand.Int64N(1 << 62)) //nolint:gosec // no secret
	return e
}

func readerOf(data []byte) io.Reader { return bytes.NewReader(bytes.Clone(data)) }

// connect opens a connection to a target. The error is a *refusal. ctx bounds the wait.
func (e *egressClient) connect(ctx context.Context, target string) (*tunnel, error) {
	dialer := net.Dialer{Timeout: askTime}
	conn, err := dialer.DialContext(ctx, e.network, e.address)
	if err != nil {
		return nil, errDown
	}
	t := &tunnel{halfConn: conn.(halfConn), number: e.last.Add(1)} //nolint:forcetypeassert // sockets of both networks are
	_ = t.SetDeadline(time.Now().Add(answerTime))                  // a connection that cannot have one is broken
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	if err := t.ask(target, e.token); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return t, nil
}

// halfConn is a connection that one side can end.
type halfConn interface {
	net.Conn
	CloseWrite() error
}

// tunnel is a connection through the egress proxy.
type tunnel struct {
	halfConn

	early  []byte // that came with the answer
	number int64
	ended  func() // called by the Read that finds the end, before that returns; nil for nothing
	begun  bool   // Read returned bytes
	local  bool   // to a server of the sandbox, without the egress proxy
	opened bool   // the egress proxy opens its TLS
	closed func() // called by Close; nil for nothing
}

// Close closes the connection.
func (t *tunnel) Close() error {
	if t.closed != nil {
		t.closed()
	}
	return t.halfConn.Close()
}

func (t *tunnel) Read(p []byte) (int, error) {
	if len(t.early) > 0 {
		n := copy(p, t.early)
		t.early = t.early[n:]
		return n, nil
	}
	n, err := t.halfConn.Read(p)
	refused := !t.begun && bytes.Equal(p[:n], egress.AccessDenied) // a client ends when it has read it
	if t.begun = true; (err != nil || refused) && t.ended != nil {
		t.ended()
		t.ended = nil
	}
	return n, err
}

// ask sends the request for a target and reads its answer before the deadline, which it lifts.
func (t *tunnel) ask(target, token string) error {
	if _, err := fmt.Fprintf(t, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s%s: %d\r\n\r\n", target, target, token, egress.HeaderConnection, t.number); err != nil {
		return errDown
	}
	r := bufio.NewReader(io.LimitReader(t.halfConn, maxAnswer))
	res, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return errDown
	}
	defer func() { _ = res.Body.Close() }()             // that of a connection is empty
	if res.StatusCode == http.StatusProxyAuthRequired { // its policy is not there yet, or no longer
		return errDown
	}
	if res.StatusCode != http.StatusOK {
		text, err := io.ReadAll(res.Body)
		if err != nil {
			return errDown
		}
		refused := &refusal{status: res.StatusCode, retryAfter: res.Header.Get("Retry-After"), text: string(text)}
		if res.StatusCode == http.StatusForbidden {
			refused.denied = res.Header.Get(egress.HeaderDenied)
		}
		return refused
	}
	t.opened = res.Header.Get(egress.HeaderIntercepted) != ""
	early, _ := r.Peek(r.Buffered()) // what is buffered can be read
	t.early = bytes.Clone(early)
	if err := t.SetDeadline(time.Time{}); err != nil {
		return errDown
	}
	return nil
}

// get asks the egress proxy for a document of at most so many bytes. Where that still has the tag,
// which may be "", it leaves into as it is. It returns the tag of the document.
func (e *egressClient) get(ctx context.Context, path, tag string, most int64, into any) (now string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, e.network, e.address)
	if err != nil {
		return "", errDown
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })()
	if tag != "" {
		tag = "If-None-Match: " + tag + "\r\n"
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: egress\r\n%s%sConnection: close\r\n\r\n", path, e.token, tag); err != nil {
		return "", errDown
	}
	res, err := http.ReadResponse(bufio.NewReader(io.LimitReader(conn, most)), nil)
	if err != nil {
		return "", errDown
	}
	defer func() { _ = res.Body.Close() }()
	now = res.Header.Get("Etag")
	switch res.StatusCode {
	case http.StatusOK:
		return now, json.UnmarshalRead(res.Body, into)
	case http.StatusNotModified:
		return now, nil
	}
	return "", fmt.Errorf("the egress proxy answered %s", res.Status)
}

func (e *egressClient) policy(ctx context.Context) (egress.Summary, error) {
	p, _, err := e.policySince(ctx, "")
	return p, err
}

// policySince returns the policy and its tag. The policy is empty where its tag is the one given.
func (e *egressClient) policySince(ctx context.Context, tag string) (p egress.Summary, now string, err error) {
	now, err = e.get(ctx, "/policy", tag, maxPolicy, &p)
	return p, now, err
}

// denied returns the reason for which the egress proxy ended a connection, or "".
func (e *egressClient) denied(ctx context.Context, number int64) string {
	var answer struct {
		Denied []egress.Denial `json:"denied"`
	}
	if _, err := e.get(ctx, "/denied?connection="+strconv.FormatInt(number, 10), "", maxDenied, &answer); err != nil {
		return ""
	}
	for _, d := range answer.Denied {
		if d.Connection == number {
			return d.Reason
		}
	}
	return ""
}

// refusalOf returns the answer for an error.
func refusalOf(err error) *refusal {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused
	}
	return &refusal{status: http.StatusBadGateway, text: "the connection failed\n"}
}
