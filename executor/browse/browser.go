package browse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"

	"github.com/actiond/actiond/executor/internal/keeper"
	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/identity"
)

const (
	// StepTime bounds a step, as in the reference (docs/reference/openhands-protocol.md, section 8.1).
	StepTime = 120 * time.Second
	// DefaultIdleTime is the time without a step after which the browser is
	// stopped.
	DefaultIdleTime = 30 * time.Minute
	// seeTime is the part of a step's time for the observation, at most a
	// quarter of it.
	seeTime = 20 * time.Second
	// fetchTime bounds how long a step waits for its downloads, which continue
	// after it.
	fetchTime = 30 * time.Second
)

// Errors of Run beside those of ctx. ErrStarting says that the browser did not
// start within the step's time; the start continues.
var (
	ErrAbsent   = errors.New("no Chromium on the PATH")
	ErrClosed   = keeper.ErrClosed
	ErrBusy     = keeper.ErrBusy
	ErrStarting = keeper.ErrStarting

	errStepTime = errors.New("the time of the step is over")
)

// Config says how the browser runs.
type Config struct {
	// Env is the environment of the browser, with the PATH to find it. The
	// browser has a home and a temporary directory of its own.
	Env []string
	// User runs the browser; nil means the user of this process.
	User *identity.User
	// Dir is the directory for downloads, and the base of relative paths of
	// uploads.
	Dir string
	// IdleTime is the time without a step after which the browser is stopped; 0
	// means DefaultIdleTime.
	IdleTime time.Duration
}

// Step is one step: a program or a URL, and the wanted observation.
type Step struct {
	// Program holds calls, one a line. If URL is not empty, the step opens it
	// instead.
	Program, URL string
	// Timeout bounds the wait for earlier steps, the start of the browser and
	// the step together; 0 or more than StepTime means StepTime.
	Timeout time.Duration
	// Text requests the page as Markdown instead of its accessibility tree.
	Text bool
	// Nodes requests the tree as data.
	Nodes bool
}

// Page is the observation after a step. Each field may be empty if Error is
// not.
type Page struct {
	URL string
	// Text is the page as Markdown. Tree is its accessibility tree in lines,
	// with the bids of elements in brackets. Both are cut at a mebibyte.
	Text, Tree string
	// Nodes and Elements are the tree as data: its nodes in order, and more
	// properties of elements by bid.
	Nodes    []any
	Elements map[string]any
	// Screenshot and Marks are PNG images of the visible part. Marks shows the
	// bids of clickable elements.
	Screenshot, Marks []byte
	OpenPages         []string // their URLs
	Active            int      // the index of this page in OpenPages
	Focused           string   // the bid of the element that has the focus
	// Error has the type and message of the errors of the step; "" if all calls
	// succeeded.
	Error string
	// Unreached says that no server accepted the connection of a Fetch.
	Unreached bool
	// Refused says that it was refused: no server listens there.
	Refused bool
	// Download is the path of the file that the step downloaded; "" if there is
	// none.
	Download string
	// Notes are sentences about other events: dialogs, the end of a browser.
	Notes []string
}

// Browser shows pages, one step at a time. Its methods may be called
// concurrently. It owns the browser process; Close ends it.
type Browser struct {
	cfg  Config
	kept *keeper.Keeper[*chromium]

	closing atomic.Bool
	bare    atomic.Bool // Chromium's own sandbox does not work here
}

// New returns a browser that has not started yet.
func New(cfg Config) *Browser {
	idle := cmp.Or(cfg.IdleTime, DefaultIdleTime)
	b := &Browser{cfg: cfg}
	b.kept = keeper.New(keeper.Config[*chromium]{
		Start: b.start, Check: (*chromium).check, Ended: (*chromium).ended, Env: cfg.Env,
		Stop:     func(c *chromium, graceful bool) { c.stop(graceful && !b.closing.Load()) },
		IdleTime: idle, IdleText: fmt.Sprintf("was stopped after %v without a step", idle),
	})
	return b
}

// SetEnv sets the environment of browsers that start later.
func (b *Browser) SetEnv(env []string) { b.kept.SetEnv(env) }

// Program returns the path of the browser; "" if it does not exist. It starts
// no process.
func (b *Browser) Program() (program string) {
	path := proc.EnvPath(b.kept.Env(), "")
	_ = b.cfg.User.Do(func() error {
		for i := 0; i < len(names) && program == ""; i++ {
			program = proc.LookPath(names[i], path)
		}
		return nil
	})
	return program
}

// Run takes a step, and starts the browser if necessary. ctx bounds the wait: a
// step that has begun continues without its caller. Errors of the step are in
// the page. The returned error is one of this package or the reason why the
// browser did not start; then nothing was done.
func (b *Browser) Run(ctx context.Context, s Step) (Page, error) {
	if s.Timeout <= 0 || s.Timeout > StepTime {
		s.Timeout = StepTime
	}
	end := time.Now().Add(s.Timeout)
	var page Page
	err := b.kept.Use(ctx, "", s.Timeout, func(t *keeper.Turn[*chromium]) {
		s.Timeout = time.Until(end)
		page = t.Value.take(context.WithoutCancel(ctx), s)
		if t.Lost != "" {
			page.Notes = append(page.Notes, "The browser of the step before "+t.Lost+". This step began in a new one, without its pages.")
		}
		if t.Value.ended() {
			t.End("")
			page.Error = "Error: the browser ended; the next step starts a new one, without its pages"
		}
	})
	if err != nil {
		return Page{}, err
	}
	return page, nil
}

// take takes a step.
func (c *chromium) take(ctx context.Context, s Step) Page {
	if s.URL != "" {
		return c.step(ctx, s, []call{{"goto", []any{s.URL}}})
	}
	calls, wrong := parse(s.Program)
	page := c.step(ctx, s, calls)
	if wrong != nil {
		page.Error = wrong.Error()
	}
	return page
}

// check returns how the browser ended, "" if it answers.
func (c *chromium) check() (lost string) {
	ctx, cancel := context.WithTimeout(context.Background(), beatTime)
	defer cancel()
	switch _, err := ask(ctx, c, browser.GetVersion, cdp.Empty{}); {
	case err == nil:
		return ""
	case errors.Is(err, errEnded):
		return "ended"
	}
	return "did not answer and was killed"
}

// start starts a browser, with Chromium's own sandbox if possible. The sandbox
// needs user namespaces, which most containers forbid, and a user other than
// root. A browser without its sandbox ends at once; the text of its error
// varies.
func (b *Browser) start(ctx context.Context, _ string, env []string) (*chromium, error) {
	program := b.Program()
	if program == "" {
		return nil, ErrAbsent
	}
	cfg := b.cfg
	cfg.Env = env
	if b.Bare() {
		return launch(ctx, &cfg, program, false)
	}
	c, err := launch(ctx, &cfg, program, true)
	if !errors.Is(err, errEnded) {
		return c, err
	}
	c, err = launch(ctx, &cfg, program, false)
	if err == nil {
		b.bare.Store(true) // for all later starts: the kernel does not change
	}
	return c, err
}

// Bare reports whether the browser is known to run without a sandbox of its
// own. It always does for root.
func (b *Browser) Bare() bool { return b.bare.Load() || b.cfg.User.EffectiveUID() == 0 }

// PIDs returns the process ids of the browsers that run.
func (b *Browser) PIDs() (pids []int) {
	for _, s := range b.kept.List() {
		if s.Live {
			pids = append(pids, s.Value.cmd.Process.Pid)
		}
	}
	return pids
}

// Close ends the browser and returns when its processes have ended. A running
// step ends with an error.
func (b *Browser) Close() {
	b.closing.Store(true)
	b.kept.Close()
}

// step makes calls until one fails, and observes the page.
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
		page.URL = locked(c, func() string { return t.url })
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

// inCall adds the name of the call to an error.
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

// recover closes a tab that cannot be observed, or kills the browser if that
// fails. It returns a message.
func (c *chromium) recover(ctx context.Context, t *tab, err error) string {
	why := err.Error()
	if errors.Is(err, errStepTime) || errors.Is(err, errBlind) {
		why = "the page does not answer"
	}
	url := locked(c, func() string { return t.url })
	ctx, cancel := context.WithTimeout(ctx, recoverTime)
	defer cancel()
	if c.replace(ctx, t) != nil {
		c.tree.Kill()
		return "Error: " + why + " (" + clip(url, 200) + "), and its tab could not be closed: the browser was killed"
	}
	return "Error: " + why + " (" + clip(url, 200) + "); its tab was closed"
}

// fetched waits for the step's downloads. It returns the path of the first one,
// and notes on the others.
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
	c.downloads = slices.DeleteFunc(c.downloads, (*download).over) // the notes below report them
	c.mu.Unlock()
	for _, d := range all {
		name := repr(clip(d.name, 200))
		switch {
		case !d.over():
			notes = append(notes, "The download of "+name+" continues; a later step reports its end.")
			continue
		case d.state == tooLarge:
			notes = append(notes, fmt.Sprintf("The download of %s was cancelled: all downloads together may have at most %d bytes.", name, maxDownload))
			continue
		case d.state == browser.DownloadProgressStateCanceled:
			notes = append(notes, "The download of "+name+" was cancelled.")
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

// maxNumber bounds the search for an unused name.
const maxNumber = 10_000

// save moves a download to file_N in the working directory, with the user's
// rights.
func (c *chromium) save(d download) (path string, err error) {
	err = c.cfg.User.Do(func() error {
		source := c.downloaded(d.guid)
		f, err := files.OpenNonBlocking(source)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
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
		n, err := io.Copy(out, io.LimitReader(files.NonBlockingReader(f), maxDownload+1))
		if n > maxDownload { // another process may write to it
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
