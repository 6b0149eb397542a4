package browse

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"
	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/files"
	"github.com/actiond/actiond/internal/tail"
)

const (
	// startTime bounds the start of the browser, which takes half a second on
	// an idle machine.
	startTime = 60 * time.Second
	// beatTime bounds the answer to the simplest command, which each step sends
	// first.
	beatTime = 10 * time.Second
	// quitTime is the time for an idle browser to end on request.
	quitTime = 3 * time.Second
	// exitTime bounds the wait for output of the process, because a descendant
	// may keep the pipe open.
	exitTime = 200 * time.Millisecond
	// maxComplaint is the size of the part of the process's standard error that
	// is kept, in bytes.
	maxComplaint = 2 << 10
	// maxTabs bounds the tabs, which pages open too.
	maxTabs = 16
	// maxDownloads bounds the downloads that no step has reported yet, and
	// maxDownload the bytes of all of them.
	maxDownloads = 16
	maxDownload  = 1 << 30
	// maxURL bounds a URL, in bytes; Chromium allows two million characters.
	maxURL = 16 << 10
	// The size of a page for agents is that of BrowserGym.
	width, height = 1280, 720
)

// names are the names of the program, best first.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chromium-headless-shell"}

// flags returns the command line: no port, no shared memory in /dev/shm, which
// is small in containers, no connections to the maker, and few processes: pages
// of different sites share them, so that a frame is part of its page.
func flags(dir string, sandboxed bool) []string {
	list := []string{
		"--headless", "--remote-debugging-pipe", "--user-data-dir=" + dir, "--no-startup-window",
		"--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars", "--mute-audio", "--lang=en-US",
		"--no-first-run", "--no-default-browser-check", "--disable-background-networking", "--disable-breakpad",
		"--disable-crash-reporter", "--disable-client-side-phishing-detection",
		"--disable-component-update", "--disable-default-apps", "--disable-domain-reliability", "--disable-extensions",
		"--disable-hang-monitor", "--disable-sync", "--metrics-recording-only", "--password-store=basic",
		"--use-mock-keychain",
		"--disable-site-isolation-trials", "--renderer-process-limit=4", "--js-flags=--max-old-space-size=512",
		"--disable-features=BackForwardCache,IsolateOrigins,site-per-process,Translate,MediaRouter,OptimizationHints,PaintHolding",
		fmt.Sprintf("--window-size=%d,%d", width, height),
	}
	if !sandboxed {
		list = append(list, "--no-sandbox")
	}
	return list
}

// chromium is a running browser. It owns two goroutines: one reads the pipe,
// one waits for the process and then ends the rest. stop waits for both.
type chromium struct {
	*pipe
	cfg       *Config
	dir       string // the profile, and the browser's home and temporary directory
	cmd       *exec.Cmd
	tree      *proc.Tree
	complaint *tail.Buffer
	reading   sync.WaitGroup
	gone      chan struct{} // closed when no process and no file of it is left

	mu        sync.Mutex // guards the fields below, and those of the tabs
	changed   chan struct{}
	tabs      []*tab // by age
	active    *tab
	downloads []*download // that no step has reported
	begun     int         // downloads, including refused ones
	lastBID   int
}

// launch starts a browser with a blank tab. The caller must call stop.
func launch(ctx context.Context, cfg *Config, program string, sandboxed bool) (*chromium, error) {
	c := &chromium{cfg: cfg, complaint: tail.New(maxComplaint), gone: make(chan struct{}), changed: make(chan struct{})}
	if err := cfg.User.Do(c.prepare); err != nil {
		c.removeDir()
		return nil, fmt.Errorf("preparing a browser: %w", err)
	}
	if err := c.spawn(program, sandboxed); err != nil {
		c.removeDir()
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	c.reading.Go(c.read)
	go c.wait()
	ctx, cancel := context.WithTimeoutCause(ctx, startTime, fmt.Errorf("%s did not answer within %v", program, startTime))
	defer cancel()
	if err := c.begin(ctx); err != nil {
		c.stop(false) //nolint:contextcheck // it kills without waiting for ctx
		if wrote := c.complaint.String(); wrote != "" {
			err = fmt.Errorf("%w; it wrote: %s", err, wrote)
		}
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	c.tree.Do(func(pid int) { proc.RaiseOOMScore(pid, c.cfg.User) }) // the browser sets its own score when it starts
	return c, nil
}

// preferences download PDFs, which an extension would show otherwise, and allow
// all downloads.
const preferences = `{"plugins":{"always_open_pdf_externally":true},"download":{"prompt_for_download":false},"credentials_enable_service":false}`

// prepare creates the profile with the user's rights.
func (c *chromium) prepare() (err error) {
	if c.dir, err = os.MkdirTemp("", "actiond-browser-"); err != nil {
		return err
	}
	if err = os.Mkdir(filepath.Join(c.dir, "Default"), 0o700); err != nil {
		return err
	}
	if err = os.Mkdir(c.downloadDir(), 0o700); err != nil {
		return err
	}
	return files.WriteNew(filepath.Join(c.dir, "Default", "Preferences"), []byte(preferences), 0o600)
}

func (c *chromium) downloadDir() string { return filepath.Join(c.dir, "downloads") }

func (c *chromium) removeDir() {
	if c.dir != "" {
		_ = c.cfg.User.Do(func() error { return os.RemoveAll(c.dir) })
	}
}

// spawn starts the process, with descriptor 3 for commands and 4 for messages.
func (c *chromium) spawn(program string, sandboxed bool) error {
	theirIn, out, err := os.Pipe()
	if err != nil {
		return err
	}
	in, theirOut, err := os.Pipe()
	if err != nil {
		_, _ = theirIn.Close(), out.Close()
		return err
	}
	defer func() { _, _ = theirIn.Close(), theirOut.Close() }()
	// No context: its end must not kill the browser.
	c.cmd = exec.Command(program, flags(c.dir, sandboxed)...) //nolint:noctx // see above
	c.cmd.Dir, c.cmd.Env = "/", c.environment()
	c.cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	c.cmd.Stderr, c.cmd.WaitDelay = c.complaint, exitTime
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: c.cfg.User.Credential()}
	if err := startNice(c.cmd); err != nil {
		_, _ = in.Close(), out.Close()
		return err
	}
	c.pipe, c.tree = newPipe(in, out, c.handle), proc.NewTree(c.cmd.Process.Pid)
	return nil
}

// niceness gives shells precedence over pages.
const niceness = 10

// startNice starts the process from a new thread, whose niceness it inherits:
// the server cannot change the niceness of another user's process.
func startNice(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // without unlock: the thread ends with this function
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
		started <- proc.Start(cmd)
	}()
	return <-started
}

// environment returns the sandbox's environment, with directories in the
// profile for all that the browser writes.
func (c *chromium) environment() []string {
	ours := []string{"HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"}
	env := slices.DeleteFunc(slices.Clone(c.cfg.Env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(ours, name) || name == "DBUS_SESSION_BUS_ADDRESS" || name == "DISPLAY"
	})
	for _, name := range ours {
		env = append(env, name+"="+c.dir)
	}
	return env
}

// wait waits for the end of the process and then ends the rest.
func (c *chromium) wait() {
	c.tree.Await()
	_ = c.cmd.Wait() // its status does not matter
	c.close()
	c.reading.Wait()
	c.removeDir()
	close(c.gone)
}

// begin configures the browser and opens the first tab.
func (c *chromium) begin(ctx context.Context) error {
	if err := tell(ctx, c, target.SetDiscoverTargets, target.SetDiscoverTargetsParams{Discover: true}); err != nil {
		return err
	}
	if err := tell(ctx, c, target.SetAutoAttach, target.SetAutoAttachParams{AutoAttach: true, Flatten: new(true)}); err != nil {
		return err
	}
	downloads := browser.SetDownloadBehaviorParams{
		Behavior: browser.SetDownloadBehaviorBehaviorAllowAndName, DownloadPath: c.downloadDir(), EventsEnabled: new(true),
	}
	if err := tell(ctx, c, browser.SetDownloadBehavior, downloads); err != nil {
		return err
	}
	return c.open(ctx)
}

// call carries out a command of the browser itself.
func (c *chromium) call(ctx context.Context, method string, params, result any) error {
	return c.callIn(ctx, "", method, params, result)
}

// ended reports whether the browser can no longer be used.
func (c *chromium) ended() bool {
	c.pipe.mu.Lock()
	defer c.pipe.mu.Unlock()
	return c.pipe.ended
}

// stop ends the browser, on request if graceful, and returns when its processes
// and goroutines have ended.
func (c *chromium) stop(graceful bool) {
	if graceful {
		ctx, cancel := context.WithTimeout(context.Background(), quitTime)
		defer cancel()
		if tell(ctx, c, browser.Close, cdp.Empty{}) == nil {
			select {
			case <-c.gone:
			case <-ctx.Done():
			}
		}
	}
	c.tree.Kill()
	<-c.gone
}

// locked calls a function with mu held.
func locked[T any](c *chromium, read func() T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	return read()
}

// await waits until holds returns true. It calls holds with mu held, after each
// event.
func (c *chromium) await(ctx context.Context, holds func() bool) error {
	for {
		c.mu.Lock()
		ok, changed := holds(), c.changed
		c.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-c.gone:
			return errEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// handle handles an event. It must not wait for an answer.
func (c *chromium) handle(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Session == "" {
		c.handleBrowser(m)
	} else if t := c.bySession(m.Session); t != nil {
		t.handle(m)
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// handleBrowser handles an event of the browser itself; mu is held.
func (c *chromium) handleBrowser(m message) {
	switch m.Method {
	case target.AttachedToTarget.Method:
		c.attached(payload(m, target.AttachedToTarget))
	case target.TargetInfoChanged.Method:
		e := payload(m, target.TargetInfoChanged)
		for _, t := range c.tabs {
			if e.TargetInfo != nil && t.target == e.TargetInfo.TargetID {
				t.url = clip(e.TargetInfo.URL, maxURL)
			}
		}
	case target.DetachedFromTarget.Method:
		if t := c.bySession(payload(m, target.DetachedFromTarget).SessionID); t != nil {
			c.forget(t)
			c.drop(t.session, errTabGone)
		}
	case browser.DownloadWillBegin.Method:
		e := payload(m, browser.DownloadWillBegin)
		c.begun++
		if len(c.downloads) == maxDownloads {
			c.cancel(e.GUID)
			break
		}
		c.downloads = append(c.downloads, &download{guid: e.GUID, name: e.SuggestedFilename})
	case browser.DownloadProgress.Method:
		c.progress(payload(m, browser.DownloadProgress))
	}
}

// attached adds a tab, which becomes the active one.
func (c *chromium) attached(e target.EventAttachedToTarget) {
	switch {
	case e.TargetInfo == nil || e.TargetInfo.Type != "page":
	case len(c.tabs) >= maxTabs:
		_ = post(c.pipe, "", target.CloseTarget, target.CloseTargetParams{TargetID: e.TargetInfo.TargetID})
	default:
		id := e.TargetInfo.TargetID
		c.active = &tab{
			c: c, target: id, frame: cdp.FrameID(id), session: e.SessionID, url: clip(e.TargetInfo.URL, maxURL), parsed: true,
			loaders: map[cdp.LoaderID]bool{}, bids: map[cdp.BackendNodeID]string{}, nodes: map[string]cdp.BackendNodeID{},
		}
		c.tabs = append(c.tabs, c.active)
	}
}

// progress records the progress of a download, and cancels it if all downloads
// together are too large: a page starts any number of them.
func (c *chromium) progress(e browser.EventDownloadProgress) {
	i := slices.IndexFunc(c.downloads, func(d *download) bool { return d.guid == e.GUID })
	if i < 0 { // a cancelled one, which may have completed before
		if e.State == browser.DownloadProgressStateCompleted {
			_ = c.cfg.User.Do(func() error { return os.Remove(c.downloaded(e.GUID)) })
		}
		return
	}
	d := c.downloads[i]
	if d.over() {
		return
	}
	d.state, d.received = e.State, e.ReceivedBytes
	var sum float64
	for _, d := range c.downloads {
		sum += d.received
	}
	if sum > maxDownload && !d.over() {
		d.state = tooLarge
		c.cancel(d.guid)
	}
}

// downloaded returns the path of a download in the profile.
func (c *chromium) downloaded(guid string) string {
	return filepath.Join(c.downloadDir(), filepath.Base(guid))
}

func (c *chromium) cancel(guid string) {
	_ = post(c.pipe, "", browser.CancelDownload, browser.CancelDownloadParams{GUID: guid})
}

// download is a file that the browser downloads or has downloaded.
type download struct {
	guid, name string
	state      browser.DownloadProgressState // "" before the first progress
	received   float64                       // bytes
	old        bool                          // begun by an earlier step
}

// tooLarge is the state of a download that was cancelled because of its size.
const tooLarge browser.DownloadProgressState = "too large"

func (d *download) over() bool {
	return d.state == browser.DownloadProgressStateCompleted || d.state == browser.DownloadProgressStateCanceled ||
		d.state == tooLarge
}

func (c *chromium) bySession(session target.SessionID) *tab {
	for _, t := range c.tabs {
		if t.session == session {
			return t
		}
	}
	return nil
}

// forget removes a tab from the list; the tab before it becomes the active one.
func (c *chromium) forget(t *tab) {
	i := slices.Index(c.tabs, t)
	c.tabs = slices.Delete(c.tabs, i, i+1)
	if c.active == t {
		c.active = nil
		if len(c.tabs) > 0 {
			c.active = c.tabs[max(0, i-1)]
		}
	}
}

// open opens a blank tab, which becomes the active one.
func (c *chromium) open(ctx context.Context) error {
	if locked(c, func() bool { return len(c.tabs) >= maxTabs }) {
		return fail("Error", "there are %d tabs already: close one with tab_close()", maxTabs)
	}
	made, err := ask(ctx, c, target.CreateTarget, target.CreateTargetParams{URL: "about:blank"})
	if err != nil {
		return err
	}
	var t *tab
	err = c.await(ctx, func() bool {
		i := slices.IndexFunc(c.tabs, func(t *tab) bool { return t.target == made.TargetID })
		if i >= 0 {
			t = c.tabs[i]
			c.active = t
		}
		return t != nil
	})
	if err != nil {
		return err
	}
	return t.setUp(ctx)
}

// current returns the active tab after setUp. It opens a tab if there is none.
func (c *chromium) current(ctx context.Context) (*tab, error) {
	active := func() *tab { return c.active }
	t := locked(c, active)
	if t == nil {
		if err := c.open(ctx); err != nil {
			return nil, err
		}
		if t = locked(c, active); t == nil {
			return nil, errTabGone
		}
	}
	return t, t.setUp(ctx)
}

// replace closes a tab and opens a blank one if it was the last.
func (c *chromium) replace(ctx context.Context, t *tab) error {
	if err := post(c.pipe, "", target.CloseTarget, target.CloseTargetParams{TargetID: t.target}); err != nil {
		return err
	}
	if err := c.await(ctx, func() bool { return !slices.Contains(c.tabs, t) }); err != nil {
		return err
	}
	_, err := c.current(ctx)
	return err
}
