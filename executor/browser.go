package executor

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/browse"
	"github.com/actiond/actiond/internal/files"
)

// The words of the browse observation are the reference's: clients and their
// tests match on them (docs/reference/openhands-protocol.md, section 8).
const (
	noBrowser = "Browser functionality is not supported or disabled."

	beginPage  = "============== BEGIN webpage content ==============\n"
	endPage    = "\n============== END webpage content ==============\n"
	beginTree  = "============== BEGIN accessibility tree ==============\n"
	endTree    = "\n============== END accessibility tree ==============\n"
	beginError = "================ BEGIN error message ===============\n"
	endError   = "\n================ END error message ===============\n"
	executed   = "[Action executed successfully.]\n"

	aboutTree = "The accessibility tree of the page follows. An element's bid is in brackets, and calls such as click(\"12\") name elements by it.\n"
	notVisit  = "The URL was not opened as it should:\n"
	notDone   = "Not all calls were done; those after the one that failed were not tried:\n"

	installBrowser = "There is no Chromium in this sandbox: `apt-get install chromium`, or take an image that has it."
	fetched        = "[There is no browser in this sandbox: the page was fetched, and its scripts did not run. `apt-get install chromium` brings one.]\n"
	browserOff     = noBrowser + " This server was started with --no-enable-browser."

	screenshotDir = ".browser_screenshots"
	// The reference keeps downloads there, at this path of its images alone, and
	// its tests count the files of a workspace.
	referenceDir, downloadDir = "/workspace", ".downloads"
)

// newBrowser returns the browser, which starts nothing yet; nil where it is
// switched off.
func newBrowser(cfg Config) *browse.Browser {
	if !cfg.Browser {
		return nil
	}
	b := browse.New(browserConfig(cfg))
	if cfg.WorkingDir == referenceDir && b.Program() != "" {
		_ = cfg.User.Do(func() error { return os.Mkdir(filepath.Join(cfg.WorkingDir, downloadDir), 0o755) }) //nolint:gosec // the user's own; it may be there
	}
	return b
}

func browserConfig(cfg Config) browse.Config {
	return browse.Config{
		Env: environment(cfg.Env, cfg.User, nil), User: cfg.User, Dir: cfg.WorkingDir,
	}
}

// browse opens a page.
func (e *Executor) browse(ctx context.Context, a api.BrowseAction, req api.Request) (api.Observation, error) {
	if e.browser == nil {
		return api.ErrorObservation{Content: noBrowser, Code: codeUnsupported}, nil
	}
	step := browse.Step{URL: e.address(a.URL), Timeout: stepTime(req), Text: true, Nodes: a.ReturnAXTree}
	program := fmt.Sprintf(`goto("%s")`, a.URL)
	page, err := e.browser.Run(ctx, step)
	note := ""
	if errors.Is(err, browse.ErrAbsent) {
		note = fetched
		if page, err = e.fetch(ctx, step); err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		// With nothing to show for it, the answer is the one without a browser.
		if page.Refused && !a.Reference {
			return api.ErrorObservation{Content: notVisit + defuse(page.Error), Code: codeRefused}, nil
		}
		if page.Unreached {
			return api.ErrorObservation{Content: noBrowser, Code: codeUnsupported}, nil
		}
	}
	if o, err := e.noPage(ctx, program, page, err); o != nil || err != nil {
		return o, err
	}
	content := fmt.Sprintf("[Current URL: %s]\n", defuse(page.URL)) + note + noted(page)
	if page.Error != "" {
		content += beginError + notVisit + defuse(page.Error) + endError
	}
	o := e.observePage(page, program, a.Kind())
	o.Content = content + beginPage + defuse(page.Text) + endPage
	return o, nil
}

// fetch gets a page without a browser.
func (e *Executor) fetch(ctx context.Context, step browse.Step) (browse.Page, error) {
	cfg := browserConfig(e.cfg)
	cfg.Env = e.sessions.shells.Env() // with the owner's proxy
	get := func() (browse.Page, error) { return browse.Fetch(ctx, cfg, step.URL, step.Timeout), nil }
	if strings.HasPrefix(step.URL, "file:") {
		return onFiles(ctx, e.files, get)
	}
	return get()
}

// interact runs a program of browser calls.
func (e *Executor) interact(
	ctx context.Context, a api.BrowseInteractiveAction, req api.Request,
) (api.Observation, error) {
	if e.browser == nil {
		return api.ErrorObservation{Content: noBrowser, Code: codeUnsupported}, nil
	}
	page, err := e.browser.Run(ctx, browse.Step{Program: a.BrowserActions, Timeout: stepTime(req), Nodes: a.ReturnAXTree})
	if errors.Is(err, browse.ErrAbsent) {
		return api.ErrorObservation{Content: noBrowser, Code: codeUnsupported}, nil
	}
	if o, err := e.noPage(ctx, a.BrowserActions, page, err); o != nil || err != nil {
		return o, err
	}
	o := e.observePage(page, a.BrowserActions, a.Kind())
	content := fmt.Sprintf("[Current URL: %s]\n[Focused element bid: %s]\n", defuse(page.URL), page.Focused)
	if o.ScreenshotPath != nil {
		content += fmt.Sprintf("[Screenshot saved to: %s]\n", *o.ScreenshotPath)
	}
	content += noted(page) + "\n"
	if page.Error != "" {
		content += beginError + notDone + defuse(page.Error) + endError
	} else {
		content += executed
	}
	o.Content = content + aboutTree + beginTree + defuse(page.Tree) + endTree
	return o, nil
}

// marks are the words by which clients and models find the parts of a content.
// A page that says them too says them with another space.
var marks = strings.NewReplacer(
	"BEGIN webpage content", "BEGIN webpage\u00a0content", "END webpage content", "END webpage\u00a0content",
	"BEGIN accessibility tree", "BEGIN accessibility\u00a0tree", "END accessibility tree", "END accessibility\u00a0tree",
	"BEGIN error message", "BEGIN error\u00a0message", "END error message", "END error\u00a0message",
	"Action executed successfully", "Action executed\u00a0successfully",
)

// defuse escapes the marks around contents in the text of a page, which could end its content otherwise.
func defuse(said string) string { return marks.Replace(said) }

// noPage answers a step after which there is no page to be shown; both results
// are nil where there is one.
func (e *Executor) noPage(ctx context.Context, program string, page browse.Page, err error) (api.Observation, error) {
	switch {
	case err == nil && page.Download == "":
		return nil, nil
	case err == nil:
		return api.DownloadObservation{
			Content: fmt.Sprintf("Execution of the previous action %s resulted in a file download. The downloaded file is saved at location: %s", program, page.Download) +
				strings.TrimSuffix("\n"+noted(page), "\n"),
			FilePath: page.Download,
		}, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, browse.ErrStarting):
		return api.ErrorObservation{Content: "The browser is still starting: nothing was done, and the next step will find it."}, nil
	case errors.Is(err, browse.ErrBusy):
		return nil, api.TooMany("the browser still takes another step: wait for it")
	}
	return api.ErrorObservation{Content: "The browser cannot be started: " + err.Error()}, nil
}

// address makes a file's URL of a text that is not a URL: a path in the working directory.
func (e *Executor) address(given string) string {
	if u, err := url.Parse(given); err == nil && u.Scheme != "" {
		return given
	}
	path := given
	if !filepath.IsAbs(path) {
		path = filepath.Join(e.cfg.WorkingDir, path)
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}

// stepTime is the time that the caller gives a step; 0 where it says nothing.
func stepTime(req api.Request) time.Duration {
	timeout, ok := limit(req)
	if !ok {
		return 0
	}
	return max(timeout, time.Millisecond)
}

func noted(page browse.Page) string {
	var notes strings.Builder
	for _, note := range page.Notes {
		notes.WriteString("[" + defuse(note) + "]\n")
	}
	return notes.String()
}

// observePage makes an observation of a page, all but its content.
func (e *Executor) observePage(page browse.Page, program, action string) api.BrowseObservation {
	o := api.BrowseObservation{
		URL: page.URL, TriggerByAction: action, Screenshot: pngURL(page.Screenshot), SetOfMarks: pngURL(page.Marks),
		ScreenshotPath: e.saveScreenshot(page.Screenshot), Error: page.Error != "",
		OpenPagesURLs: page.OpenPages, ActivePageIndex: page.Active,
		LastBrowserAction: program, LastBrowserActionError: page.Error, FocusedElementBID: page.Focused,
	}
	if page.Nodes != nil {
		o.AXTreeObject, o.ExtraElementProperties = map[string]any{"nodes": page.Nodes}, page.Elements
	}
	return o
}

func pngURL(data []byte) string {
	if data == nil {
		return ""
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(data)
}

// saveScreenshot writes a screenshot with the user's rights; nil where that
// cannot be done.
func (e *Executor) saveScreenshot(data []byte) *string {
	if data == nil {
		return nil
	}
	dir := filepath.Join(e.cfg.WorkingDir, screenshotDir)
	now := time.Now()
	path := filepath.Join(dir, fmt.Sprintf("screenshot_%s_%06d.png", now.Format("20060102_150405"), now.Nanosecond()/1000))
	err := e.cfg.User.Do(func() error {
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // the user's own, like all in the workspace
			return err
		}
		return files.WriteNew(path, data, 0o644)
	})
	if err != nil {
		return nil
	}
	return &path
}

// browserCapabilities returns the capabilities of the browser, without starting
// one.
func (e *Executor) browserCapabilities() (page, interactive api.Capability) {
	if e.browser == nil {
		off := api.Capability{Detail: browserOff}
		return off, off
	}
	program := e.browser.Program()
	if program == "" {
		return api.Capability{Available: true, Detail: "by a plain fetch, without scripts. " + installBrowser},
			api.Capability{Detail: noBrowser + " " + installBrowser}
	}
	there := api.Capability{Available: true, Detail: program + ", started on first use"}
	if e.browser.Bare() {
		there.Detail += "; without a sandbox of its own, which takes user namespaces and another user than root"
	}
	return there, there
}
