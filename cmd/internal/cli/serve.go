package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/gateway"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/sandbox"
)

// serveFlags are the flags of serve that are not about sandboxes.
type serveFlags struct {
	addr, metricsAddr, keyFile, keySecret, publicURL, previewDomain string
	pool                                                            string
	warm, most                                                      int
	debug, untilEOF, remove                                         bool
}

func (p *program) serve() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve [flags] [IMAGE]",
		Short: "Let controllers elsewhere use the sandboxes of this host",
		Long: `Serve answers HTTP until it is interrupted: it makes, lists and ends sandboxes,
and passes requests on to each of them. It speaks a REST of its own, described at
/openapi.yaml, and the runtime API of OpenHands, whose RemoteRuntime can use it.
It also removes sandboxes whose time is up.

Every request needs the key, in the header X-API-Key. Without --key-file the key is
made once and kept in the file gateway-key of the state directory, which only you
can read; it is not printed. Each sandbox also has a key of its own, in the header
X-Session-API-Key, that reaches this sandbox and nothing else.

The flags about sandboxes say what one has that its creator does not ask for, and
IMAGE from what it is made. With --warm, sandboxes of that kind are kept ready, and
given away in a moment. What callers cannot ask for, mounts, other networks,
runtimes, security options, programs of root and, on Kubernetes, nodes and image
pull secrets, only these flags give, to every sandbox. A network policy of these
flags limits those that callers ask for. A --secret is for sandboxes whose creator
names it, with the hosts that the flag says.

It listens on this machine alone. For others, put a proxy with TLS before it and
name that with --public-url. The first line that it prints is where it listens,
http://HOST:PORT or unix:///PATH; nothing else follows. Interrupted, it undoes
creations that are under way and removes sandboxes that wait in the pool; all others
stay.

A program that starts it as a child gives it --until-eof --remove and a pipe as
standard input: when the program ends, however that happens, so does this, and the
sandboxes that it made go with it. Others of the state directory stay.

With --on local sandboxes are processes of this machine, which isolates nothing:
who has the key has all rights of your user.`,
		Example: `  runtimectl serve
  runtimectl serve --warm 4 --memory 1g --ttl 8h debian:bookworm
  runtimectl serve --on local --addr unix:/tmp/actiond.sock --until-eof --remove
  key=$(sudo cat /var/lib/actiond/gateway-key)
  curl -H "X-API-Key: $key" localhost:8700/v1/sandboxes`,
		Args:              command.ArgRange(0, 1),
		ValidArgsFunction: p.CompleteImage,
	}
	flags := platform.AddSpec(c)
	flags.LeaveOut("name", "key")
	flags.Offer()
	f.add(c)
	p.AddServer(c)
	p.AddCreation(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		image := ""
		if len(args) > 0 {
			image = args[0]
		}
		spec, err := flags.Spec(&p.Platform, image)
		if err == nil {
			err = f.check(spec, p.Local)
		}
		if err != nil {
			return command.Usage(cmd, err)
		}
		return p.serveHost(cmd.Context(), f, spec, flags.Offered())
	}
	return c
}

const (
	// servePool is the name of the pool of --warm.
	servePool = "serve"
	// removedTTL is the default of --ttl with --remove.
	removedTTL = time.Hour
)

func (f *serveFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.addr, "addr", "127.0.0.1:8700",
		"listen on `ADDRESS`: HOST:PORT, where port 0 takes any, or unix:PATH, a socket for your user alone")
	c.Flags().StringVar(&f.metricsAddr, "metrics-addr", "",
		"answer /metrics at `HOST:PORT` without a key (default: nowhere)")
	c.Flags().StringVar(&f.keyFile, "key-file", "", "read the key from this `FILE`, which only its owner can read (default: gateway-key in the\nstate directory, made if it is not there)")
	c.Flags().StringVar(&f.keySecret, "key-secret", "",
		"on Kubernetes, take the key from the `SECRET` of the namespace, made if it is not there")
	c.MarkFlagsMutuallyExclusive("key-file", "key-secret")
	c.Flags().StringVar(&f.publicURL, "public-url", "", "callers reach this through `URL` (default: as they say)")
	c.Flags().StringVar(&f.previewDomain, "preview-domain", "",
		"answer for web pages of sandboxes at PORT-ID.`DOMAIN`, which must lead here; a port may follow (default: no pages)")
	c.Flags().IntVar(&f.warm, "warm", 0, "keep `N` sandboxes ready")
	c.Flags().StringVar(&f.pool, "pool", servePool, "call the pool of these `NAME`")
	c.Flags().IntVar(&f.most, "max-sandboxes", 0,
		"have at most `N` sandboxes, those that are kept ready aside (default: no limit)")
	c.Flags().BoolVar(&f.untilEOF, "until-eof", false, "end when standard input does")
	c.Flags().BoolVar(&f.remove, "remove", false, "at the end, remove the sandboxes that were made here; should this be killed, they end\nafter --ttl (1h where none is given)")
	c.Flags().BoolVar(&f.debug, "debug", false, "log each request")
}

func (f *serveFlags) check(spec sandbox.Spec, onLocal bool) error {
	if !httpserver.IsAddress(f.addr) {
		return fmt.Errorf("--addr %q: must be HOST:PORT or unix:PATH", f.addr)
	}
	switch {
	case onLocal && spec.Image != "":
		return fmt.Errorf("there are no images with --on local: leave %s out", spec.Image)
	case onLocal && f.warm > 0:
		return errors.New("--warm needs an engine: leave it out with --on local")
	}
	if _, _, err := net.SplitHostPort(f.metricsAddr); err != nil && f.metricsAddr != "" {
		return fmt.Errorf("--metrics-addr %q: must be HOST:PORT", f.metricsAddr)
	}
	if f.warm > 0 && spec.Image == "" {
		return errors.New("--warm needs an image to make sandboxes from")
	}
	if f.pool != servePool && f.warm == 0 {
		return errors.New("--pool names the sandboxes that are kept ready: give it a size with --warm")
	}
	return nil
}

// serveHost serves until ctx ends.
func (p *program) serveHost(ctx context.Context, f serveFlags, spec sandbox.Spec, offered []egress.Secret) (err error) {
	servers, err := p.WithServers()
	if err != nil {
		return err
	}
	logger, phases := p.newLogger(f.debug), gateway.NewPhases()
	o := platform.Options{Progress: phases.Progress, Logger: logger}
	servers(&o)
	if p.Local {
		p.WarnLocal()
	}
	if f.remove && spec.TTL == 0 {
		spec.TTL = removedTTL
		_, _ = fmt.Fprintln(p.Stderr, "note: with --remove, sandboxes end an hour after they were made, unless --ttl or their creator says otherwise")
	}
	driver, err := p.Open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, driver.Close()) }()
	g, pool, err := p.newGateway(ctx, f, gateway.Config{
		Driver: driver, Defaults: spec, Secrets: offered, Phases: phases, Logger: logger,
	})
	if err != nil {
		return err
	}
	listener, err := httpserver.Listen(ctx, f.addr)
	if err != nil {
		g.Close()
		return fmt.Errorf("listening at --addr: %w", err)
	}
	stopMetrics, err := p.serveMetrics(ctx, g, f.metricsAddr)
	if err != nil {
		g.Close()
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, stopMetrics()) }()
	if err := p.sayAddress(listener.Addr()); err != nil {
		return errors.Join(err, listener.Close())
	}
	if addr, ok := listener.Addr().(*net.TCPAddr); ok && !addr.IP.IsLoopback() {
		_, _ = fmt.Fprintln(p.Stderr, "note: others on the network reach this, and keys and actions travel as they are: put a proxy with TLS before it")
	}
	if f.untilEOF {
		var cancel context.CancelFunc
		ctx, cancel = p.untilEOF(ctx, logger)
		defer cancel()
	}
	err = g.Serve(ctx, listener)
	if pool != nil {
		drainCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), platform.RemoveLimit)
		defer cancel()
		err = errors.Join(err, pool.Drain(drainCtx))
	}
	return err
}

// newGateway returns the gateway of the flags, and its pool; nil without one.
func (p *program) newGateway(ctx context.Context, f serveFlags, cfg gateway.Config) (*gateway.Gateway, *sandbox.Pool, error) {
	var err error
	if cfg.Key, err = p.findKey(ctx, cfg.Driver, f); err != nil {
		return nil, nil, err
	}
	warm := cfg.Defaults
	if warm.Policy == nil {
		warm.Private, warm.NoNames = nil, false // they are for policies that creators ask for
	}
	if err := p.checkDefaults(ctx, cfg.Driver, warm); err != nil {
		return nil, nil, err
	}
	if cfg.GPUs, err = givenGPUs(ctx, cfg.Driver, warm.GPUs); err != nil {
		return nil, nil, err
	}
	warm.GPUs, cfg.Defaults.GPUs = sandbox.GPUs{}, sandbox.GPUs{} // no sandbox has those that it does not ask for
	if cfg.Pool, err = p.warmPool(ctx, cfg.Driver, warm, f, cfg.Logger); err != nil {
		return nil, nil, err
	}
	cfg.PoolSize, cfg.MaxSandboxes, cfg.RemoveMade = f.warm, f.most, f.remove
	cfg.PublicURL, cfg.PreviewDomain, cfg.Version = f.publicURL, f.previewDomain, p.Version
	g, err := gateway.New(cfg)
	return g, cfg.Pool, err
}

// givenGPUs returns the GPUs that --gpus gives out, with their names if the driver gives them by name: so that each is
// one sandbox's at a time.
func givenGPUs(ctx context.Context, driver sandbox.Driver, asked sandbox.GPUs) (sandbox.GPUs, error) {
	lister, ok := driver.(sandbox.GPULister)
	if asked.Count == 0 || !ok {
		return asked, nil
	}
	known, err := lister.GPUs(ctx)
	switch {
	case err != nil:
		return asked, err
	case known == nil:
		return asked, sandbox.Invalid("--gpus %s: which GPUs there are is not known, as there is no nvidia-smi beside the engine; name them: --gpus UUID,UUID", asked)
	case asked.Count > len(known):
		return asked, sandbox.Invalid("--gpus %s: there are %d, %s", asked, len(known), strings.Join(known, ", "))
	case asked.Count > 0:
		known = known[:asked.Count]
	}
	return sandbox.GPUs{Devices: known}, nil
}

// serveMetrics answers /metrics at an address, unless that is empty, until stop.
func (p *program) serveMetrics(ctx context.Context, g *gateway.Gateway, addr string) (stop func() error, err error) {
	if addr == "" {
		return func() error { return nil }, nil
	}
	listener, err := httpserver.Listen(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("listening at --metrics-addr: %w", err)
	}
	stop = g.ServeMetrics(ctx, listener)
	_, _ = fmt.Fprintf(p.Stderr, "note: metrics are at http://%s/metrics\n", listener.Addr())
	return stop, nil
}

// newLogger returns the logger of the gateway.
func (p *program) newLogger(debug bool) *slog.Logger {
	level := slog.LevelInfo
	if debug {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: level}))
}

// sayAddress prints where the gateway listens, for the program that started it.
func (p *program) sayAddress(addr net.Addr) error {
	url := "http://" + addr.String()
	if addr.Network() == "unix" {
		path, err := filepath.Abs(addr.String())
		if err != nil {
			return fmt.Errorf("finding the socket: %w", err)
		}
		url = "unix://" + path
	}
	_, err := fmt.Fprintln(p.Stdout, url)
	return err
}

// untilEOF returns a context that also ends when standard input does.
func (p *program) untilEOF(ctx context.Context, logger *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() { // ends with standard input, or with this program
		_, _ = io.Copy(io.Discard, p.Stdin) // one that cannot be read has ended, too
		logger.InfoContext(ctx, "standard input has ended")
		cancel()
	}()
	return ctx, cancel
}

// checkDefaults refuses defaults that no sandbox can have, whichever image its creator names.
func (p *program) checkDefaults(ctx context.Context, driver sandbox.Driver, spec sandbox.Spec) error {
	if !p.Local {
		spec.Image = cmp.Or(spec.Image, "any")
	}
	if _, err := driver.Check(ctx, &spec); !errors.Is(err, sandbox.ErrUnknown) {
		return err
	}
	return nil
}

// findKey returns the key of the gateway, from where the flags say.
func (p *program) findKey(ctx context.Context, driver sandbox.Driver, f serveFlags) (string, error) {
	if f.keySecret != "" {
		keeper, err := sandbox.Needs[sandbox.KeyKeeper](driver, "keep the key of a gateway in a Secret")
		if err != nil {
			return "", err
		}
		key, err := keeper.GatewayKey(ctx, f.keySecret)
		if err != nil {
			return "", err
		}
		return checkKey(key, "the Secret "+f.keySecret)
	}
	stateDir, err := p.StateDir()
	if err != nil {
		return "", err
	}
	return p.gatewayKey(f.keyFile, stateDir)
}

// checkKey returns the key in text, which is from a file or a Secret.
func checkKey(text, from string) (string, error) {
	key := strings.TrimSpace(text)
	if len(key) < minKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("reading the key: %s must hold one line of at least %d letters, digits and signs", from, minKey)
	}
	return key, nil
}

// warmPool opens the pool, if there is to be one, and asks the engine once.
func (p *program) warmPool(
	ctx context.Context, driver sandbox.Driver, spec sandbox.Spec, f serveFlags, logger *slog.Logger,
) (*sandbox.Pool, error) {
	if _, err := driver.List(ctx); err != nil {
		if !errors.Is(err, sandbox.ErrUnknown) || errors.Is(err, fs.ErrPermission) { // which time does not change
			return nil, err
		}
		_, _ = fmt.Fprintf(p.Stderr, "note: %s; serving what can be served until it is back\n", errorText(err))
	}
	if f.warm == 0 {
		return nil, nil //nolint:nilnil // there is to be none
	}
	return sandbox.NewPool(ctx, driver, f.pool, spec, f.warm, logger)
}

const (
	keyFileName = "gateway-key"
	minKey      = 32 // characters: too many to guess
)

// gatewayKey reads the key, and makes one where no file is named and there is
// none yet. It is kept because controllers outlive a gateway, and not printed
// because logs are read by more people than this file.
func (p *program) gatewayKey(file, stateDir string) (string, error) {
	if file == "" {
		file = filepath.Join(stateDir, keyFileName)
		if err := makeKey(file); err != nil {
			return "", fmt.Errorf("making the key: %w", err)
		}
		_, _ = fmt.Fprintf(p.Stderr, "note: the key is in %s\n", file)
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", command.Absent(fmt.Errorf("reading the key: %w", err))
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("reading the key: others can read or change %s; make it yours alone with 'chmod 600 %s'", file,
			file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the key: %w", err)
	}
	return checkKey(string(data), file)
}

// makeKey makes the file unless it is there. It appears whole: of two programs
// that make it at once, one is first.
func makeKey(file string) error {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temp := file + "." + rand.Text()
	if err := os.WriteFile(temp, []byte(rand.Text()+rand.Text()+"\n"), 0o600); err != nil {
		return err
	}
	err := os.Link(temp, file)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, os.Remove(temp))
}
