package browse

import (
	"context"
	"encoding/json"
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

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/lookpath"
	"github.com/actiond/actiond/executor/nowait"
	"github.com/actiond/actiond/executor/proctree"
	"github.com/actiond/actiond/executor/spawn"
	"github.com/actiond/actiond/executor/tail"
)

const (
	// startTime bounds the start of the browser, which takes half a second on a
	// quiet machine.
	startTime = 60 * time.Second
	// beatTime bounds the browser's simplest answer, asked for before a step.
	beatTime = 10 * time.Second
	// quitTime is how long an idle browser has to end by itself.
	quitTime = 3 * time.Second
	// exitTime bounds the wait for output of the process, which a grandchild may
	// keep open.
	exitTime = 200 * time.Millisecond
	// maxComplaint is how much is kept of what the process writes as errors.
	maxComplaint = 2 << 10
	// maxTabs bounds the tabs; a page may open them too.
	maxTabs = 16
	// maxDownloads bounds the downloads that wait for a step to tell of them, and
	// maxDownload the bytes of all of them.
	maxDownloads = 16
	maxDownload  = 1 << 30
	// maxURL bounds an address; a browser allows two million characters.
	maxURL = 16 << 10
	// The size of a page as agents see it, BrowserGym's.
	width, height = 1280, 720
)

// names are the programs looked for, best first.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chromium-headless-shell"}

// find returns the browser on the PATH of env; "" where there is none.
func find(env []string) string {
	path := lookpath.Of(env, "")
	for _, name := range names {
		if program := lookpath.Find(name, path); program != "" {
			return program
		}
	}
	return ""
}

// flags are what every start has. No port, no shared memory in /dev/shm, which
// containers keep small, no calls home, and no more processes than needed: pages
// of different sites share them, so that a frame is part of its page.
func flags(dir string, sandboxed bool) []string {
	list := []string{
		"--headless", "--remote-debugging-pipe", "--user-data-dir=" + dir, "--no-startup-window",
		"--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars", "--mute-audio", "--lang=en-US",
		"--no-first-run", "--no-default-browser-check", "--disable-background-networking", "--disable-breakpad",
		"--disable-crash-reporter", "--disable-client-side-phishing-detection",
		"--disable-component-update", "--disable-default-apps", "--disable-domain-reliability", "--disable-extensions",
		"--disable-hang-monitor", "--disable-sync", "--metrics-recording-only", "--password-store=basic", "--use-mock-keychain",
		"--disable-site-isolation-trials", "--renderer-process-limit=4", "--js-flags=--max-old-space-size=512",
		"--disable-features=BackForwardCache,IsolateOrigins,site-per-process,Translate,MediaRouter,OptimizationHints,PaintHolding",
		fmt.Sprintf("--window-size=%d,%d", width, height),
	}
	if !sandboxed {
		list = append(list, "--no-sandbox")
	}
	return list
}

// chromium is one living browser. It owns two goroutines: one reads what it says,
// one waits for the process and then ends the rest; stop waits for both.
type chromium struct {
	*pipe
	cfg       *Config
	dir       string // the profile, and the browser's home and temporary directory
	cmd       *exec.Cmd
	tree      *proctree.Tree
	complaint *tail.Buffer
	reading   sync.WaitGroup
	gone      chan struct{} // closed once nothing of it is left

	mu        sync.Mutex // guards what follows, and the state of the tabs
	changed   chan struct{}
	tabs      []*tab // by age
	active    *tab
	downloads []*download // that no step has told of
	begun     int         // downloads, those refused too
	lastBID   int
}

// launch starts a browser with a blank tab. The caller must call stop.
func launch(ctx context.Context, cfg *Config, program string, sandboxed bool) (*chromium, error) {
	c := &chromium{cfg: cfg, complaint: tail.New(maxComplaint), gone: make(chan struct{}), changed: make(chan struct{})}
	if err := cfg.As(c.prepare); err != nil {
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
		c.stop(ctx, false)
		if said := c.complaint.String(); said != "" {
			err = fmt.Errorf("%w; it said: %s", err, said)
		}
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	c.offer() // once more: when it starts it sets its score itself
	return c, nil
}

// preferences have PDFs downloaded and not shown by an extension, and keep
// nothing from being downloaded.
const preferences = `{"plugins":{"always_open_pdf_externally":true},"download":{"prompt_for_download":false},"credentials_enable_service":false}`

// prepare makes the profile, with the user's rights.
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
	return nowait.WriteNew(filepath.Join(c.dir, "Default", "Preferences"), []byte(preferences), 0o600)
}

func (c *chromium) downloadDir() string { return filepath.Join(c.dir, "downloads") }

func (c *chromium) removeDir() {
	if c.dir != "" {
		_ = c.cfg.As(func() error { return os.RemoveAll(c.dir) })
	}
}

// spawn starts the process with descriptors 3, for commands, and 4.
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
	// No context: one that ends must not kill the browser.
	c.cmd = exec.Command(program, flags(c.dir, sandboxed)...) //nolint:noctx // see above
	c.cmd.Dir, c.cmd.Env = "/", c.environment()
	c.cmd.ExtraFiles = []*os.File{theirIn, theirOut}
	c.cmd.Stderr, c.cmd.WaitDelay = c.complaint, exitTime
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: c.cfg.User}
	if err := startNice(c.cmd); err != nil {
		_, _ = in.Close(), out.Close()
		return err
	}
	c.pipe, c.tree = newPipe(in, out, c.handle), proctree.New(c.cmd.Process.Pid)
	c.offer()
	return nil
}

// niceness has shells get the processor first, whatever pages do with it.
const niceness = 10

// startNice starts the process from a thread of its own, whose niceness it
// inherits: that of another user's process the server may not change.
func startNice(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this function
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
		started <- spawn.Start(cmd)
	}()
	return <-started
}

// environment is the sandbox's with a home that exists: what the browser writes
// goes away with the profile.
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

// offer has the browser go before the server when memory runs out.
func (c *chromium) offer() {
	c.tree.Do(func(pid int) { proctree.Offer(pid, c.cfg.As) })
}

// wait waits for the process's end and then ends everything else.
func (c *chromium) wait() {
	c.tree.Await()
	_ = c.cmd.Wait() // how it ended is of no interest
	c.close()
	c.reading.Wait()
	c.removeDir()
	close(c.gone)
}

// begin sets the browser up and opens the first tab.
func (c *chromium) begin(ctx context.Context) error {
	for _, command := range []struct {
		method string
		params map[string]any
	}{
		{"Target.setDiscoverTargets", map[string]any{"discover": true}},
		{"Target.setAutoAttach", map[string]any{"autoAttach": true, "waitForDebuggerOnStart": false, "flatten": true}},
		{"Browser.setDownloadBehavior", map[string]any{"behavior": "allowAndName", "downloadPath": c.downloadDir(), "eventsEnabled": true}},
	} {
		if err := c.call(ctx, "", command.method, command.params, nil); err != nil {
			return err
		}
	}
	return c.open(ctx)
}

// beat returns nil once the browser has answered.
func (c *chromium) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beatTime)
	defer cancel()
	return c.call(ctx, "", "Browser.getVersion", nil, nil)
}

// ended tells whether the browser is of no more use.
func (c *chromium) ended() bool {
	c.pipe.mu.Lock()
	defer c.pipe.mu.Unlock()
	return c.pipe.ended
}

// stop ends the browser, by asking first if politely, and returns when its
// processes and goroutines are gone.
func (c *chromium) stop(ctx context.Context, politely bool) {
	if politely {
		ctx, cancel := context.WithTimeout(ctx, quitTime)
		defer cancel()
		if c.call(ctx, "", "Browser.close", nil, nil) == nil {
			select {
			case <-c.gone:
			case <-ctx.Done():
			}
		}
	}
	c.tree.Kill()
	<-c.gone
}

// await waits until holds returns true; it is called with mu held, whenever
// something has changed.
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

// handle takes the events. It must not wait for an answer.
func (c *chromium) handle(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var e event
	if json.Unmarshal(m.Params, &e) != nil {
		return
	}
	if m.Session == "" {
		c.handleBrowser(m.Method, e)
	} else if t := c.bySession(m.Session); t != nil {
		t.handle(m.Method, e)
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// event has the parameters of all events that are looked at.
type event struct {
	SessionID  string `json:"sessionId"`
	TargetInfo struct {
		TargetID string `json:"targetId"`
		Type     string `json:"type"`
		URL      string `json:"url"`
	} `json:"targetInfo"`
	FrameID string `json:"frameId"`
	Frame   struct {
		ID       string `json:"id"`
		ParentID string `json:"parentId"`
		LoaderID string `json:"loaderId"`
	} `json:"frame"`
	GUID     string          `json:"guid"`
	Received float64         `json:"receivedBytes"`
	State    string          `json:"state"`
	URL      string          `json:"url"`
	Type     string          `json:"type"`
	Message  string          `json:"message"`
	Filename string          `json:"suggestedFilename"`
	Data     json.RawMessage `json:"data"`
}

func (c *chromium) handleBrowser(method string, e event) {
	switch method {
	case "Target.attachedToTarget":
		switch {
		case e.TargetInfo.Type != "page":
		case len(c.tabs) >= maxTabs:
			_, _, _ = c.send("", "Target.closeTarget", map[string]any{"targetId": e.TargetInfo.TargetID})
		default:
			c.active = newTab(c, e.TargetInfo.TargetID, e.SessionID, clip(e.TargetInfo.URL, maxURL))
			c.tabs = append(c.tabs, c.active)
		}
	case "Target.targetInfoChanged":
		for _, t := range c.tabs {
			if t.target == e.TargetInfo.TargetID {
				t.url = clip(e.TargetInfo.URL, maxURL)
			}
		}
	case "Target.detachedFromTarget":
		if t := c.bySession(e.SessionID); t != nil {
			c.forget(t)
			c.drop(t.session, errTabGone)
		}
	case "Browser.downloadWillBegin":
		c.begun++
		if len(c.downloads) == maxDownloads {
			c.cancel(e.GUID)
			break
		}
		c.downloads = append(c.downloads, &download{guid: e.GUID, name: e.Filename, url: e.URL})
	case "Browser.downloadProgress":
		c.progress(e)
	}
}

// progress notes how far a download is, and ends it where they all take too much:
// a page begins them as it likes, and nobody else bounds the disk.
func (c *chromium) progress(e event) {
	i := slices.IndexFunc(c.downloads, func(d *download) bool { return d.guid == e.GUID })
	if i < 0 { // one that was refused, and may have been faster
		if e.State == "completed" {
			_ = c.cfg.As(func() error { return os.Remove(c.downloaded(e.GUID)) })
		}
		return
	}
	d := c.downloads[i]
	if d.over() {
		return
	}
	d.state, d.received = e.State, e.Received
	var sum float64
	for _, d := range c.downloads {
		sum += d.received
	}
	if sum > maxDownload && !d.over() {
		d.state = tooLarge
		c.cancel(d.guid)
	}
}

// downloaded is the path of a download in the profile.
func (c *chromium) downloaded(guid string) string {
	return filepath.Join(c.downloadDir(), filepath.Base(guid))
}

func (c *chromium) cancel(guid string) {
	_, _, _ = c.send("", "Browser.cancelDownload", map[string]any{"guid": guid})
}

// download is a file that is fetched, or was.
type download struct {
	guid, name, url string
	state           string // "", "inProgress", "completed", "canceled", or tooLarge
	received        float64
	old             bool // begun by a step before
}

// tooLarge is the state of a download that was ended because of its size.
const tooLarge = "too large"

func (d *download) over() bool {
	return d.state == "completed" || d.state == "canceled" || d.state == tooLarge
}

func (c *chromium) bySession(session string) *tab {
	for _, t := range c.tabs {
		if t.session == session {
			return t
		}
	}
	return nil
}

// forget takes a tab off the list; the one before it becomes the active one.
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
	c.mu.Lock()
	full := len(c.tabs) >= maxTabs
	c.mu.Unlock()
	if full {
		return fail("Error", "there are %d tabs already: close one with tab_close()", maxTabs)
	}
	var made struct {
		TargetID string `json:"targetId"`
	}
	if err := c.call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &made); err != nil {
		return err
	}
	var t *tab
	err := c.await(ctx, func() bool {
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

// current returns the active tab, which it makes ready; a new one where there is none.
func (c *chromium) current(ctx context.Context) (*tab, error) {
	c.mu.Lock()
	t := c.active
	c.mu.Unlock()
	if t == nil {
		if err := c.open(ctx); err != nil {
			return nil, err
		}
		c.mu.Lock()
		t = c.active
		c.mu.Unlock()
		if t == nil {
			return nil, errTabGone
		}
	}
	return t, t.setUp(ctx)
}

// replace closes a tab that is of no more use and opens a blank one.
func (c *chromium) replace(ctx context.Context, t *tab) error {
	_, _, err := c.send("", "Target.closeTarget", map[string]any{"targetId": t.target})
	if err != nil {
		return err
	}
	if err := c.await(ctx, func() bool { return !slices.Contains(c.tabs, t) }); err != nil {
		return err
	}
	_, err = c.current(ctx)
	return err
}
