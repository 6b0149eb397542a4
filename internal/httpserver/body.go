package httpserver

import (
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// Bodies sets deadlines for reading the bodies of all requests, including bodies that
// no handler reads: net/http reads on after the handler. After each handler, Bodies
// calls received with the number of bytes that were read.
func Bodies(next http.Handler, received func(n int64)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		b := &body{ReadCloser: r.Body, conn: http.NewResponseController(w), begun: time.Now()}
		b.extend(b.begun)
		r.Body = b
		next.ServeHTTP(w, r)
		received(b.n)
	})
}

// SaysJSON reports whether a request says that its body is JSON: a browser sends no
// such body to another origin without asking first.
func SaysJSON(r *http.Request) bool {
	sent := r.Header.Get("Content-Type")
	if sent == JSON {
		return true
	}
	kind, _, err := mime.ParseMediaType(sent)
	return err == nil && (kind == JSON || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"))
}

// HurryBody limits the time that the body of a request may still take, counted from
// now. It works for requests that went through [Bodies].
func HurryBody(r *http.Request, limit time.Duration) {
	if b, ok := r.Body.(*body); ok {
		b.latest = time.Now().Add(limit)
		b.extend(time.Now())
	}
}

// PatientBody removes the deadline of the body of a request. It is for authenticated
// clients: others could hold the connection forever. It works for requests that went
// through [Bodies].
func PatientBody(r *http.Request) {
	if b, ok := r.Body.(*body); ok {
		b.patient = true
		_ = b.conn.SetReadDeadline(time.Time{}) // tests have no connection
	}
}

// body is a request body with a deadline that moves as data arrives.
type body struct {
	io.ReadCloser
	conn   *http.ResponseController
	begun  time.Time
	latest time.Time // the zero value sets no limit
	n      int64

	patient bool // no deadline
}

// Read fails with os.ErrDeadlineExceeded if no data arrives for StallTime, or if the
// body is slower than the slowest rate since its start.
func (b *body) Read(p []byte) (int, error) {
	if b.n > 0 && !b.patient {
		b.extend(time.Now())
	}
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	if err == io.EOF {
		// From here on net/http reads only to notice that the client closes the
		// connection, and an action has no time limit.
		_ = b.conn.SetReadDeadline(time.Time{}) // tests have no connection
	}
	return n, err
}

func (b *body) extend(now time.Time) {
	deadline := b.begun.Add(StallTime + allowance(b.n))
	if stall := now.Add(StallTime); stall.Before(deadline) {
		deadline = stall
	}
	if !b.latest.IsZero() && b.latest.Before(deadline) {
		deadline = b.latest
	}
	_ = b.conn.SetReadDeadline(deadline) // tests have no connection
}
