package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"time"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/httpserver"
)

const (
	controlHeader = 8 << 10
	// controlEnd is how long requests of the controller get at the end.
	controlEnd = 3 * time.Second
)

// serveEgress is the egress proxy of a controller until ctx ends. The argument is a directory: conf
// has the controller's files, run gets a directory with a socket for each sandbox, and control is
// the controller's socket, which answers once all files were applied. A file that cannot be applied
// leaves its sandbox without a network.
func serveEgress(ctx context.Context, args []string, stderr io.Writer) (err error) {
	if len(args) != 1 || !filepath.IsAbs(args[0]) {
		return usagef("egress needs the absolute name of a directory with the directories conf and run")
	}
	dir := args[0]
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	// The first to listen is the only one: a second proxy would take the sockets of the sandboxes.
	listener, err := httpserver.Listen(ctx, "unix:"+filepath.Join(dir, "control"))
	if err != nil {
		return err
	}
	proxy := egress.New(egress.Config{RunDir: filepath.Join(dir, "run"), Log: logger})
	defer proxy.Close()
	control := egress.NewControl(proxy, filepath.Join(dir, "conf"), version())
	if err := control.Load(); err != nil {
		logger.ErrorContext(ctx, "cannot apply all files", slog.Any("error", err))
	}
	srv := httpserver.NewServer(ctx, control.Handler(), controlHeader, logger)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	logger.InfoContext(ctx, "serving", slog.String("version", version()))
	select {
	case err = <-served:
	case <-ctx.Done():
		err = errors.Join(httpserver.Shutdown(ctx, srv, controlEnd), <-served)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
