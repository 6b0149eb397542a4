package server

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/time/rate"

	"github.com/actiond/actiond/api"
)

// Internals that tests need.
var MemberName = memberName

// FileError is fileError for an error of the system at a path.
func FileError(errno syscall.Errno, path string) error {
	return fileError(&fs.PathError{Op: "open", Path: path, Err: errno}, path)
}

// Overwrite writes size bytes to a path.
func Overwrite(path string, content io.Reader, size int64) error {
	err := new(Server).putFollowing(filepath.Dir(path), incomingFile{
		name: filepath.Base(path), size: size, follow: true,
		open: func() (io.ReadCloser, error) { return io.NopCloser(content), nil },
	})
	return legacyFileError(err, path, 400)
}

// PutAsServer writes an empty file as the server does where the user may not; it calls
// opened when it is about to write.
func PutAsServer(owner Owner, directory, name string, opened func() error) error {
	s := &Server{cfg: Config{Owner: &owner}}
	return s.putAsServer(directory, incomingFile{name: name, open: func() (io.ReadCloser, error) {
		return io.NopCloser(new(bytes.Buffer)), opened()
	}})
}

// Unpack puts the content of a zip into a directory.
func (s *Server) Unpack(archive *os.File, size int64, directory string) error {
	return s.unpack(context.Background(), archive, size, directory)
}

// Inspect returns what is wrong with a zip.
func Inspect(archive []byte, most int64) error {
	_, err := inspect(context.Background(), bytes.NewReader(archive), int64(len(archive)), most)
	return err
}

// Bounds that tests go beyond.
const (
	MaxMembers   = maxMembers
	SmallContent = smallContent
	MaxConns     = maxConns
	MaxHeader    = maxHeader
	MaxTunnels   = maxTunnels
	MaxFollowers = maxFollowers
	MaxWatchers  = maxWatchers
)

// SetTunnelIdle sets how long a tunnel may carry nothing.
func (s *Server) SetTunnelIdle(d time.Duration) { s.tunnels.idle = d }

// SetTunnelRate sets how many tunnels a second may be opened from now on, the first at
// once, and how long a request waits for its turn.
func (s *Server) SetTunnelRate(most rate.Limit, wait time.Duration) {
	s.tunnels.rate, s.tunnels.wait = rate.NewLimiter(most, 1), wait
}

// Route is a line of the table.
type Route struct {
	Method, Path string
	Open         bool
}

// Routes returns the table.
func (s *Server) Routes() []Route {
	var routes []Route
	for _, rt := range s.routes() {
		routes = append(routes, Route{rt.Method, rt.Path, rt.Open})
	}
	return routes
}

// SetHeartbeat makes streamed answers beat more often than any test waits.
func (s *Server) SetHeartbeat(d time.Duration) { s.heartbeat = d }

// SetClock makes it seem that the wall clock was set forward by so much, after all
// that the life of the sandbox remembers.
func (s *Server) SetClock(forward time.Duration) {
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	for _, t := range []*time.Time{&s.life.since, &s.life.deadline} {
		// A time that was read from the clock has the seconds of the wall clock in
		// the upper bits of its first word, and the monotonic clock in its second.
		*(*uint64)(unsafe.Pointer(t)) -= uint64(forward/time.Second) << 30
	}
}

// NextLook is when the limits of the sandbox's life are looked at next, or which
// of them is reached.
func (s *Server) NextLook() (due time.Time, reason string) { return s.life.next(false) }

// GroupUsage is what a control group uses.
func GroupUsage(dir string) (api.Usage, bool) { return controlGroup(dir).usage() }

// CloseNetwork closes the local proxy, as Serve does at its end.
func (s *Server) CloseNetwork() { s.network.close() }

// HasNetwork reports whether there is a local proxy.
func (s *Server) HasNetwork() bool { return s.network.proxy() != nil || s.network.claimed() != nil }
