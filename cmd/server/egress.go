package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/server"
)

const (
	controlHeader = 8 << 10
	// controlEnd is how long requests of the controller get at the end.
	controlEnd = 3 * time.Second
)

// serveEgress is the egress proxy of a controller until ctx ends. The argument is a directory: conf
// has the controller's files, run gets a directory with a socket for each sandbox, and control is
// the controller's socket, which answers once all files were applied. A file that cannot be applied
// leaves its sandbox without a network. With --listen it is that of a cluster.
func serveEgress(ctx context.Context, args []string, stderr io.Writer) (err error) {
	logger := slog.New(slog.NewTextHandler(stderr, nil))
	if len(args) > 0 && strings.HasPrefix(args[0], "-") {
		return serveClusterEgress(ctx, args, logger)
	}
	if len(args) != 1 || !filepath.IsAbs(args[0]) {
		return usagef("egress needs the absolute name of a directory with the directories conf and run, or --listen")
	}
	dir := args[0]
	// The first to listen is the only one: a second proxy would take the sockets of the sandboxes.
	listener, err := httpserver.Listen(ctx, "unix:"+filepath.Join(dir, "control"))
	if err != nil {
		return err
	}
	proxy := egress.New(egress.Config{RunDir: filepath.Join(dir, "run"), MaxOpen: capacity(), Log: logger})
	defer proxy.Close()
	control := egress.NewControl(proxy, filepath.Join(dir, "conf"), version())
	if err := control.Load(); err != nil {
		logger.ErrorContext(ctx, "cannot apply all files", slog.Any("error", err))
	}
	logger.InfoContext(ctx, "serving", slog.String("version", version()))
	return serveControl(ctx, listener, control.Handler(), logger)
}

// unlimited is the memory that is used where there is no limit.
const unlimited = 512 << 20

// capacity is how many connections the limits of memory and of files of this container admit; 0: not known.
func capacity() int {
	var files unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) != nil {
		return 0
	}
	return egress.Capacity(cmp.Or(server.SandboxMemory(), unlimited), files.Cur)
}

// serveControl answers the controller until ctx ends.
func serveControl(ctx context.Context, listener net.Listener, h http.Handler, logger *slog.Logger) (err error) {
	srv := httpserver.NewServer(ctx, h, controlHeader, logger)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
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

// serveClusterEgress is the egress proxy of a Kubernetes namespace until ctx ends: sandboxes reach it
// by TCP with their tokens, and the Secrets of its Pod's namespace have their policies. It refuses
// all connections until all of these were applied.
func serveClusterEgress(ctx context.Context, args []string, logger *slog.Logger) (err error) {
	flags := flag.NewFlagSet("egress", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	listen := flags.String("listen", "", "")
	metrics := flags.String("metrics-listen", ":3129", "")
	never := flags.String("never", "", "")
	most := flags.Int("max-connections", capacity(), "")
	if err := flags.Parse(args); err != nil {
		return usagef("egress: %v", err)
	}
	if flags.NArg() > 0 || *listen == "" {
		return usagef("egress needs --listen with an address, and then no directory")
	}
	if *most < 1 {
		return usagef("--max-connections %d: give a positive number", *most)
	}
	var own []netip.Addr
	for text := range strings.SplitSeq(*never, ",") {
		addr, err := netip.ParseAddr(text)
		if err != nil && text != "" {
			return usagef("--never %q: %v", text, err)
		}
		if text != "" {
			own = append(own, addr)
		}
	}
	var synced atomic.Bool
	proxy := egress.New(egress.Config{MaxOpen: *most, Log: logger})
	defer proxy.Close()
	cluster, host, err := egress.InPod(logger, func() { synced.Store(true) })
	if err != nil {
		return err
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		own = append(own, addr)
	}
	if err := proxy.SetHost(own); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	listeners := make([]net.Listener, 2)
	for i, at := range []string{*listen, *metrics} {
		var config net.ListenConfig
		if listeners[i], err = config.Listen(ctx, "tcp", at); err != nil {
			return err
		}
		defer func() { _ = listeners[i].Close() }()
	}
	running.Go(func() { proxy.Follow(ctx, cluster) })
	failed := make(chan error, 1)
	running.Go(func() {
		defer end()
		failed <- proxy.Serve(ctx, listeners[0])
	})
	logger.InfoContext(ctx, "serving", slog.String("version", version()))
	err = serveControl(ctx, listeners[1], egress.NewControl(proxy, "", version()).Watched(synced.Load), logger)
	end()
	return errors.Join(err, <-failed)
}
