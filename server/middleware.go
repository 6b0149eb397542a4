package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/server/bound"
)

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status int // 0 while nothing was sent
	bytes  int64
}

// WriteHeader remembers the final status.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write counts.
func (w *recorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController through.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// noSniff keeps browsers from guessing types; shared, as a header value is
// only read.
var noSniff = []string{"nosniff"}

// observe counts every request and writes its line into the log: no query, no
// header and no body, as these hold secrets.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		w.Header()["X-Content-Type-Options"] = noSniff
		rec := &recorder{ResponseWriter: w}
		defer func() { s.observed(r, rec, time.Since(begun)) }()
		next.ServeHTTP(rec, r)
	})
}

func (s *Server) observed(r *http.Request, rec *recorder, took time.Duration) {
	s.metrics.request(r, rec)
	if !s.log.Enabled(r.Context(), slog.LevelDebug) {
		return
	}
	s.log.LogAttrs(r.Context(), slog.LevelDebug, "request",
		slog.String("method", r.Method),
		slog.String("path", r.URL.Path),
		slog.Int("status", rec.status),
		slog.Duration("duration", took),
		slog.Int64("bytes", rec.bytes))
}

// boundBodies keeps bodies coming, and counts them.
func (s *Server) boundBodies(next http.Handler) http.Handler {
	return bound.Bodies(next, func(n int64) { s.metrics.received.Add(float64(n)) })
}

// recoverPanics makes a failure of the request of a panic in its handler. The
// server goes on: no lock is held across a handler.
func (s *Server) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch v := recover(); v {
			case nil:
			case http.ErrAbortHandler: // meant to end the connection
				panic(v)
			default:
				s.fail(w, r, fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
			}
		}()
		next.ServeHTTP(w, r)
	})
}

// authenticate asks for the key on every path that is not open. Paths are
// compared as they were sent: an open path in disguise is not open.
func (s *Server) authenticate(routes []route) func(http.Handler) http.Handler {
	open := map[string]bool{}
	for _, rt := range routes {
		if rt.open {
			open[rt.path] = true
		}
	}
	return func(next http.Handler) http.Handler {
		if s.cfg.Key == "" && !s.cfg.Claim {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawPath != "" || !open[r.URL.Path] {
				if err := s.owner.check(r.Header.Get(api.KeyHeader)); err != nil {
					s.fail(w, r, err)
					return
				}
			}
			next.ServeHTTP(w, r)
		})
	}
}

// sameOrigin refuses what a foreign web page makes a browser send. Without a
// key nothing else would keep a page that is open on the same machine from
// uploading files here. Clients that are no browsers are not concerned.
func (s *Server) sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	refused := &api.Error{Status: http.StatusForbidden, Detail: "This request comes from a web page of another origin; send it without a browser"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := protection.Check(r); err != nil {
			s.fail(w, r, refused)
			return
		}
		next.ServeHTTP(w, r)
	})
}
