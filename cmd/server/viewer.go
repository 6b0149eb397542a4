package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/server"
)

// viewerURLFile is where agents find the address of the file viewer
// (docs/reference/openhands-protocol.md, section 8.3).
const viewerURLFile = "/tmp/oh-server-url"

// startViewer serves the file viewer; stop ends it. As in the reference every
// server with a port has one. Behind a Unix socket, which the reference does not
// know, there is one where there is a browser that could look at it. Without it
// everything else works: errors are logged.
func startViewer(
	ctx context.Context, opts *options, exec *executor.Executor, user *identity.User, temps *files.Ledger,
	logger *slog.Logger,
) (stop func()) {
	if strings.HasPrefix(opts.addr, "unix:") && !exec.Capabilities()["browse_interactive"].Available {
		return func() {}
	}
	listener, err := listenNear(ctx, opts.addr)
	if err != nil {
		logger.WarnContext(ctx, "the file viewer has no port", slog.Any("error", err))
		return func() {}
	}
	url := fmt.Sprintf("http://localhost:%d", listener.Addr().(*net.TCPAddr).Port)
	err = user.Do(func() error { return replaceFile(temps, viewerURLFile, url) })
	switch {
	case errors.Is(err, fs.ErrPermission): // /tmp is sticky: on a host that several users share this is so for all but the first
		logger.InfoContext(ctx, "agents find another user's file viewer, whose server was first on this host",
			slog.String("file", viewerURLFile), slog.String("url", url))
	case err != nil:
		logger.WarnContext(ctx, "agents will not find the file viewer", slog.String("url", url), slog.Any("error", err))
	}
	viewer := server.Viewer(exec.As) //nolint:contextcheck // its requests end with their connections
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = viewer.Serve(httpserver.LimitListener(listener, server.MaxViews)) // until it is closed
	}()
	return func() {
		_ = viewer.Close()
		<-done
	}
}

// listenNear listens on the loopback interface: on one of the 1024 ports above
// that of the server, or, where it has none, on any.
func listenNear(ctx context.Context, addr string) (listener net.Listener, err error) {
	var config net.ListenConfig
	_, text, _ := net.SplitHostPort(addr)
	port, _ := strconv.Atoi(text)
	if port == 0 {
		return config.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	err = fmt.Errorf("there is no port above %d", port)
	for p := port + 1; p <= min(port+1024, 65535); p++ {
		if listener, err = config.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", p)); err == nil {
			return listener, nil
		}
	}
	return nil, err
}

// replaceFile replaces whatever has that name by a new file: others may write to
// the directory, and a link of theirs must lead nowhere.
func replaceFile(temps *files.Ledger, path, content string) error {
	f, err := temps.Create(files.System{}, "", filepath.Dir(path), 0o600)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.WriteString(content); err != nil {
		return err
	}
	if err := errors.Join(f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return f.Rename(path)
}
