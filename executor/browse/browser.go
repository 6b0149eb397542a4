package browse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/actiond/actiond/executor/nowait"
)

const (
	// StepTime bounds a step, as in the reference (openhands.md, section 8.1).
	StepTime = 120 * time.Second
	// DefaultIdleTime is how long the browser may do nothing before it is stopped.
	DefaultIdleTime = 30 * time.Minute
	// seeTime is what of a step's time is kept for looking at the page, at most a
	// quarter of it.
	seeTime = 20 * time.Second
	// fetchTime is how long a step waits for its downloads; they go on after it.
	fetchTime = 30 * time.Second
)

// Errors of Run beside those of ctx.
var (
	ErrClosed = errors.New("the browser is closed")
	ErrAbsent = errors.New("no Chromium on the PATH")
	ErrBusy   = errors.New("another step still runs")

	errStepTime = errors.New("the time of the step is over")
)

// Config says how the browser is run.
type Config struct {
	// Env is the environment of the browser, which is looked for on its PATH. Home
	// and temporary directory are the browser's own.
	Env []string
	// User is whose rights the browser has; nil means those of this process.
	User *syscall.Credential
	// As does work with the rights of User on files; nil calls it as it is.
	As func(work func() error) error
	// Dir is where downloads go, and what relative paths of uploads begin at.
	Dir string
	// IdleTime is how long the browser may do nothing before it is stopped; 0
	// means DefaultIdleTime.
	IdleTime time.Duration
}

// Step is what is to be done before the page is looked at.
type Step struct {
	// Program is what to do; URL, if it is not empty, is opened instead.
	Program, URL string
	// Timeout bounds the wait for the turn, and then the step; 0 or more than
	// StepTime means StepTime.
	Timeout time.Duration
	// Text asks for the page as Markdown instead of its accessibility tree.
	Text bool
	// Nodes asks for the tree as data.
	Nodes bool
}

// Page is what there is to be seen after a step. Every field may be empty where
// Error is not.
type Page struct {
	URL string
	// Text is the page as Markdown, Tree its accessibility tree in lines, where
	// elements have their bid in brackets; either is cut at a mebibyte.
	Text, Tree string
	// Nodes and Elements are the tree as data: its nodes in order, and by bid what
	// else is known of an element.
	Nodes    []any
	Elements map[string]any
	// Screenshot and Marks are PNG images of what is visible, the second with the
	// bids of what can be clicked.
	Screenshot, Marks []byte
	OpenPages         []string // their URLs
	Active            int      // the index of this page in OpenPages
	Focused           string   // the bid of the element that has the focus
	// Error says what went wrong with the step, as a type and a message; "" where
	// all calls were done.
	Error string
	// Unreached says that a Fetch found nobody who takes its connection.
	Unreached bool
	// Download is the path of the file that the step fetched, if it did.
	Download string
	// Notes are sentences on what else happened: dialogs, the end of a browser.
	Notes []string
}

// Browser shows pages, one step at a time. Its methods may be called
// concurrently. It owns the browser process, a goroutine for the step that runs,
// and a timer while the process is idle; Close ends all of them.
type Browser struct {
	turn    chan struct{} // holds a token while nobody takes a step
	closing chan struct{}
	running sync.WaitGroup

	mu     sync.Mutex
	cfg    Config
	live   *chromium // whoever has the turn changes it
	closed bool

	// Whoever has the turn may change these.
	lost  string // what became of the browser of the step before
	steps int    // that were taken
	idle  *time.Timer
	bare  bool // the browser does not start with a sandbox of its own
}

// New returns a browser that is not started yet.
func New(cfg Config) *Browser {
	if cfg.As == nil {
		cfg.As = func(work func() error) error { return work() }
	}
	if cfg.IdleTime == 0 {
		cfg.IdleTime = DefaultIdleTime
	}
	b := &Browser{cfg: cfg, turn: make(chan struct{}, 1), closing: make(chan struct{})}
	b.turn <- struct{}{}
	return b
}

// SetEnv sets the environment of browsers that are started from now on.
func (b *Browser) SetEnv(env []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cfg.Env = env
}

func (b *Browser) config() *Config {
	b.mu.Lock()
	defer b.mu.Unlock()
	return new(b.cfg)
}

// Program returns the path of the browser; "" where there is none. It starts
// nothing.
func (b *Browser) Program() (program string) {
	cfg := b.config()
	_ = cfg.As(func() error {
		program = find(cfg.Env)
		return nil
	})
	return program
}

// Run takes a step, starting the browser if need be. ctx bounds the wait: a step
// that has begun goes on without its caller. What goes wrong in a step is told in
// the page. The error is one of this package's, or the reason why the browser
// does not start; nothing was done then.
func (b *Browser) Run(ctx context.Context, s Step) (Page, error) {
	if s.Timeout <= 0 || s.Timeout > StepTime {
		s.Timeout = StepTime
	}
	if err := b.wait(ctx, s.Timeout); err != nil {
		return Page{}, err
	}
	type result struct {
		page Page
		err  error
	}
	done := make(chan result, 1)
	go func() {
		defer b.running.Done()
		var r result
		r.page, r.err = b.step(context.WithoutCancel(ctx), s)
		b.turn <- struct{}{}
		done <- r
	}()
	select {
	case r := <-done:
		return r.page, r.err
	case <-ctx.Done():
		return Page{}, context.Cause(ctx)
	}
}

// wait takes the turn and counts the step in.
func (b *Browser) wait(ctx context.Context, limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-b.turn:
	case <-timer.C:
		return ErrBusy
	case <-b.closing:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		b.turn <- struct{}{}
		return ErrClosed
	}
	b.running.Add(1)
	return nil
}

// step takes a step with the turn.
func (b *Browser) step(ctx context.Context, s Step) (Page, error) {
	if b.idle != nil {
		b.idle.Stop()
	}
	if s.URL != "" {
		return b.look(ctx, s, []call{{"goto", []any{s.URL}}})
	}
	calls, wrong := parse(s.Program)
	page, err := b.look(ctx, s, calls)
	if wrong != nil {
		page.Error = wrong.Error()
	}
	return page, err
}

// look does calls and looks at the page.
func (b *Browser) look(ctx context.Context, s Step, calls []call) (Page, error) {
	c, err := b.living(ctx)
	if err != nil {
		return Page{}, err
	}
	page := c.step(ctx, s, calls)
	if b.lost != "" {
		page.Notes = append(page.Notes, "The browser of the step before "+b.lost+". This step began in a new one, without its pages.")
		b.lost = ""
	}
	if c.ended() {
		c.stop(ctx, false)
		b.setLive(nil)
		page.Error = "Error: the browser ended; the next step starts a new one, without its pages"
	}
	b.steps++
	steps, idle := b.steps, c.cfg.IdleTime
	b.idle = time.AfterFunc(idle, func() { b.stopIdle(steps, idle) }) //nolint:contextcheck // nobody waits for that
	return page, nil
}

// living returns the browser, or a new one where it has ended.
func (b *Browser) living(ctx context.Context) (*chromium, error) {
	if c := b.live; c != nil {
		err := c.beat(ctx)
		if err == nil {
			return c, nil
		}
		c.stop(ctx, false)
		b.lost = "ended"
		if !errors.Is(err, errEnded) {
			b.lost = "did not answer and was killed"
		}
	}
	b.setLive(nil)
	c, err := b.start(ctx)
	if err != nil {
		return nil, err
	}
	b.setLive(c)
	return c, nil
}

// start starts a browser, unless Close ends that.
func (b *Browser) start(ctx context.Context) (*chromium, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-b.closing:
			cancel(ErrClosed)
		case <-ctx.Done():
		}
	})
	defer watching.Wait()
	defer cancel(nil)
	return b.launch(ctx)
}

// launch starts a browser with its own sandbox where it can have one. That takes
// user namespaces, which most containers forbid, and another user than root.
func (b *Browser) launch(ctx context.Context) (*chromium, error) {
	program := b.Program()
	if program == "" {
		return nil, ErrAbsent
	}
	cfg := b.config()
	if !b.Bare() {
		c, err := launch(ctx, cfg, program, true)
		if err == nil || !strings.Contains(strings.ToLower(err.Error()), "sandbox") {
			return c, err
		}
	}
	b.mu.Lock()
	b.bare = true // it stays so: the kernel will not change
	b.mu.Unlock()
	return launch(ctx, cfg, program, false)
}

// Bare tells whether the browser has no sandbox of its own, as far as it is known.
func (b *Browser) Bare() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bare || b.cfg.root()
}

// root tells whether the browser is root's, for whom Chromium has no sandbox.
func (c *Config) root() bool {
	if c.User != nil {
		return c.User.Uid == 0
	}
	return os.Geteuid() == 0
}

// setLive changes the browser. One that comes when Close was there is killed.
func (b *Browser) setLive(c *chromium) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.live = c
	if b.closed && c != nil {
		c.tree.Kill()
	}
}

// stopIdle stops a browser that has done nothing for a while, since as many steps
// as that. The last of them may not have given back its turn yet.
func (b *Browser) stopIdle(steps int, idle time.Duration) {
	select {
	case <-b.turn:
	case <-b.closing:
		return
	}
	if c := b.live; c != nil && b.steps == steps {
		c.stop(context.Background(), true)
		b.lost = fmt.Sprintf("was stopped after %v without a step", idle)
		b.setLive(nil)
	}
	b.turn <- struct{}{}
}

// Close ends the browser and returns when nothing of it is left. A step that runs
// is answered with the browser's end.
func (b *Browser) Close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.closing)
	}
	c := b.live
	b.mu.Unlock()
	if c != nil {
		c.tree.Kill()
	}
	b.running.Wait()
	<-b.turn // and keeps it, after the idle timer's work
	if b.idle != nil {
		b.idle.Stop()
	}
	if c != nil {
		<-c.gone
	}
	b.turn <- struct{}{} // for another Close
}

// step does calls, one after the other until one goes wrong, and looks at what
// came of them.
func (c *chromium) step(ctx context.Context, s Step, calls []call) Page {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, errStepTime)
	defer cancel()
	acting, done := context.WithTimeoutCause(ctx, s.Timeout-min(seeTime, s.Timeout/4), errStepTime)
	defer done()
	c.mu.Lock()
	for _, d := range c.downloads {
		d.old = true
	}
	for _, t := range c.tabs {
		t.restless = false
	}
	c.mu.Unlock()
	var failed error
	for _, call := range calls {
		if failed = c.do(acting, call); failed != nil {
			failed = inCall(call, failed)
			break
		}
	}
	t, err := c.current(ctx)
	if err == nil {
		err = t.settle(acting)
		if errors.Is(err, errStepTime) {
			err = nil
		}
	}
	var page Page
	if t != nil {
		c.mu.Lock()
		page.URL = t.url
		c.mu.Unlock()
	}
	page.Download, page.Notes = c.fetched(acting)
	if err == nil {
		err = c.see(ctx, t, s, &page)
	}
	var wrong []string
	if failed != nil {
		wrong = append(wrong, failed.Error())
	}
	switch {
	case errors.Is(err, errUnseen):
		wrong = append(wrong, err.Error())
	case err != nil && t != nil:
		wrong = append(wrong, c.recover(context.WithoutCancel(ctx), t, err))
	}
	page.Error = strings.Join(wrong, "\n")
	return page
}

// inCall says which call went wrong.
func inCall(call call, err error) error {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	switch {
	case errors.Is(err, errStepTime):
		return fail("TimeoutError", "%s did not end in the time of this step", call.name)
	case errors.Is(err, errCrashed):
		return fail("Error", "%s: the page crashed", call.name)
	}
	return fail("Error", "%s: %v", call.name, err)
}

const recoverTime = 5 * time.Second

// recover closes a tab that cannot be looked at, and the browser if that does not
// help. It returns what to say.
func (c *chromium) recover(ctx context.Context, t *tab, err error) string {
	why := err.Error()
	if errors.Is(err, errStepTime) || errors.Is(err, errBlind) {
		why = "the page does not answer"
	}
	c.mu.Lock()
	url := t.url
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, recoverTime)
	defer cancel()
	if c.replace(ctx, t) != nil {
		c.tree.Kill()
		return "Error: " + why + " (" + clip(url, 200) + "), and so the browser was ended"
	}
	return "Error: " + why + " (" + clip(url, 200) + "); its tab was closed"
}

// fetched waits for the downloads that the step began, and puts the first one
// where the agent finds it.
func (c *chromium) fetched(ctx context.Context) (path string, notes []string) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	_ = c.await(ctx, func() bool {
		return !slices.ContainsFunc(c.downloads, func(d *download) bool { return !d.old && !d.over() })
	})
	c.mu.Lock()
	all := make([]download, 0, len(c.downloads))
	for _, d := range c.downloads {
		all = append(all, *d)
	}
	c.downloads = slices.DeleteFunc(c.downloads, (*download).over) // told of below
	c.mu.Unlock()
	for _, d := range all {
		name := repr(clip(d.name, 200))
		switch {
		case !d.over():
			notes = append(notes, "The download of "+name+" goes on; a later step tells when it is there.")
			continue
		case d.state == tooLarge:
			notes = append(notes, fmt.Sprintf("The download of %s was broken off: downloads may have %d bytes in all.", name, maxDownload))
			continue
		case d.state == "canceled":
			notes = append(notes, "The download of "+name+" was broken off.")
			continue
		}
		saved, err := c.save(d)
		switch {
		case err != nil:
			notes = append(notes, fmt.Sprintf("The file %s was downloaded and could not be saved: %v", name, err))
		case path == "":
			path = saved
		default:
			notes = append(notes, "The file "+name+" was downloaded too, to "+saved)
		}
	}
	return path, notes
}

// maxNumber bounds the search for a name that is not taken.
const maxNumber = 10_000

// save moves a download to file_N in the working directory, with the user's
// rights.
func (c *chromium) save(d download) (path string, err error) {
	err = c.cfg.As(func() error {
		source := c.downloaded(d.guid)
		f, err := nowait.Open(source)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		in, err := nowait.Reader(f)
		if err != nil {
			return err
		}
		var out *os.File
		for n := 1; n <= maxNumber; n++ {
			path = filepath.Join(c.cfg.Dir, fmt.Sprintf("file_%d%s", n, extension(d.name)))
			if out, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); !errors.Is(err, os.ErrExist) {
				break
			}
		}
		if err != nil {
			return err
		}
		n, err := io.Copy(out, io.LimitReader(in, maxDownload+1))
		if n > maxDownload { // others may write to it
			err = fmt.Errorf("it has more than %d bytes", maxDownload)
		}
		err = errors.Join(err, out.Close(), os.Remove(source))
		if err != nil {
			_ = os.Remove(path)
		}
		return err
	})
	return path, err
}
