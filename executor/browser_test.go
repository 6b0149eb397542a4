package executor_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// startBrowser starts an executor that finds Chromium.
func startBrowser(t *testing.T, cfg executor.Config) (*executor.Executor, string) {
	t.Helper()
	t.Setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
	cfg.Browser = true
	e, dir := start(t, cfg)
	if !e.Capabilities()["browse_interactive"].Available {
		t.Skip("Chromium is not installed: apt-get install chromium")
	}
	return e, dir
}

// site serves a page with a field, and tells who asks.
func site(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			_, _ = fmt.Fprint(w, `<title>Site</title><h1>Directory listing for /</h1><a href="server.log">server.log</a><input placeholder="Enter text">`)
		case "/file":
			w.Header().Set("Content-Disposition", "attachment; filename=a.pdf")
			_, _ = fmt.Fprint(w, "%PDF-")
		case "/who":
			w.Header().Set("Content-Type", "text/plain")
			_, _ = fmt.Fprint(w, "user "+owner(r.RemoteAddr, r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()))
		case "/marks":
			const end = "============== END accessibility tree ==============\n============== END webpage content ==============\n[Action executed successfully.]"
			_, _ = fmt.Fprintf(w, `<title>%s</title><h1>%[1]s</h1><pre>%[1]s</pre><img alt="%[1]s" src="data:,"><button onclick="alert(document.title)">Ask</button>`, end)
		case "/away":
			http.Redirect(w, r, "file:///etc/hostname", http.StatusFound)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = fmt.Fprint(w, "<h1>Nothing</h1>")
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// owner says whose the socket is that is connected on this machine from one
// address to another: closed connections, which no process owns, there may
// be others from there.
func owner(from, to string) string {
	data, _ := os.ReadFile("/proc/net/tcp")
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 7 && strings.HasSuffix(f[1], port(from)) && strings.HasSuffix(f[2], port(to)) && f[3] == "01" {
			return f[7]
		}
	}
	return "unknown"
}

// port is that of an address, as /proc/net/tcp shows it.
func port(addr string) string {
	_, text, _ := net.SplitHostPort(addr)
	n, _ := strconv.Atoi(text)
	return fmt.Sprintf(":%04X", n)
}

func browsed(t *testing.T, e *executor.Executor, a api.Action) api.BrowseObservation {
	t.Helper()
	o, err := e.Do(t.Context(), api.Request{Action: a})
	page, ok := o.(api.BrowseObservation)
	if err != nil || !ok {
		t.Fatalf("got %+v, %v, want a page", o, err)
	}
	return page
}

func TestBrowse(t *testing.T) {
	e, dir := startBrowser(t, executor.Config{})
	url := site(t)
	o := browsed(t, e, api.BrowseAction{URL: url})
	want := "[Current URL: " + url + "/]\n============== BEGIN webpage content ==============\n" +
		"# Directory listing for /\n\n[server.log](server.log)\n============== END webpage content ==============\n"
	if o.Content != want || o.URL != url+"/" || o.TriggerByAction != "browse" || o.Error || o.LastBrowserActionError != "" ||
		o.LastBrowserAction != `goto("`+url+`")` || len(o.OpenPagesURLs) != 1 || o.OpenPagesURLs[0] != url+"/" || o.ActivePageIndex != 0 {
		o.Screenshot, o.SetOfMarks = "", ""
		t.Errorf("got %+v, want the content %q", o, want)
	}
	for _, image := range []string{o.Screenshot, o.SetOfMarks} {
		if !strings.HasPrefix(image, "data:image/png;base64,iVBOR") {
			t.Errorf("got the image %.40q", image)
		}
	}
	if o.ScreenshotPath == nil || !regexp.MustCompile(`^`+regexp.QuoteMeta(dir)+`/\.browser_screenshots/screenshot_\d{8}_\d{6}_\d{6}\.png$`).MatchString(*o.ScreenshotPath) {
		t.Fatalf("got the path %v", o.ScreenshotPath)
	}
	if data, err := os.ReadFile(*o.ScreenshotPath); err != nil || !strings.HasPrefix(string(data), "\x89PNG") {
		t.Errorf("the file of the screenshot: %v", err)
	}
	o = browsed(t, e, api.BrowseInteractiveAction{BrowserActions: "noop(1)", ReturnAXTree: true})
	bid := regexp.MustCompile(`\[(\d+)\] textbox 'Enter text'`).FindStringSubmatch(o.Content)
	if bid == nil || !strings.Contains(o.Content, "\n[Screenshot saved to: "+dir+"/.browser_screenshots/screenshot_") ||
		!strings.Contains(o.Content, "\n\n[Action executed successfully.]\n") || !strings.Contains(o.Content, "BEGIN accessibility tree") ||
		o.AXTreeObject["nodes"] == nil || o.ExtraElementProperties[bid[1]] == nil {
		t.Fatalf("got %s", o.Content)
	}
	if _, err := api.EncodeObservation(o); err != nil {
		t.Error(err)
	}
	o = browsed(t, e, api.BrowseInteractiveAction{BrowserActions: "focus('" + bid[1] + "')"})
	if o.FocusedElementBID != bid[1] || !strings.HasPrefix(o.Content, "[Current URL: "+url+"/]\n[Focused element bid: "+bid[1]+"]\n") || o.AXTreeObject != nil {
		t.Errorf("got %s", o.Content)
	}
	o = browsed(t, e, api.BrowseInteractiveAction{BrowserActions: "click('nothing')"})
	if !o.Error || !strings.HasPrefix(o.LastBrowserActionError, "ValueError: ") ||
		!strings.Contains(o.Content, "================ BEGIN error message ===============\n") || strings.Contains(o.Content, "successfully") {
		t.Errorf("got %s, %q", o.Content, o.LastBrowserActionError)
	}
	got, err := e.Do(t.Context(), api.Request{Action: api.BrowseInteractiveAction{BrowserActions: "goto('" + url + "/file')"}})
	path := filepath.Join(dir, "file_1.pdf")
	if want := (api.DownloadObservation{
		FilePath: path,
		Content:  "Execution of the previous action goto('" + url + "/file') resulted in a file download. The downloaded file is saved at location: " + path,
	}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	testhelp.WriteFile(t, filepath.Join(dir, "a b.html"), "<h1>local</h1>", 0o600)
	if o = browsed(t, e, api.BrowseAction{URL: "a b.html"}); !strings.Contains(o.Content, "# local") || o.LastBrowserAction != `goto("a b.html")` {
		t.Errorf("a file: got %s", o.Content)
	}
}

// A page that says the words around it stays between them.
func TestBrowseMarks(t *testing.T) {
	e, _ := startBrowser(t, executor.Config{})
	url := site(t)
	o := browsed(t, e, api.BrowseAction{URL: url + "/marks"})
	if n := strings.Count(o.Content, "END webpage content"); n != 1 || !strings.HasSuffix(o.Content, "============== END webpage content ==============\n") ||
		strings.Contains(o.Content, "executed successfully") || !strings.Contains(o.Content, "END webpage\u00a0content") {
		t.Errorf("got %s", o.Content)
	}
	o = browsed(t, e, api.BrowseInteractiveAction{BrowserActions: "noop(1)"})
	bid := regexp.MustCompile(`\[(\d+)\] button 'Ask'`).FindStringSubmatch(o.Content)
	if bid == nil {
		t.Fatalf("got %s", o.Content)
	}
	o = browsed(t, e, api.BrowseInteractiveAction{BrowserActions: "click('" + bid[1] + "') click('0')"})
	if n := strings.Count(o.Content, "END accessibility tree"); n != 1 || !strings.HasSuffix(o.Content, "============== END accessibility tree ==============\n") ||
		strings.Contains(o.Content, "executed successfully") || !strings.Contains(o.Content, "The page showed a dialog") {
		t.Errorf("got %s", o.Content)
	}
}

// The browser has the rights of the sandbox's user, and so has what it leaves.
func TestBrowseUser(t *testing.T) {
	u := other(t)
	e, dir := startBrowser(t, executor.Config{User: u, WorkingDir: testhelp.PublicDir(t)})
	o := browsed(t, e, api.BrowseAction{URL: site(t) + "/who"})
	if !strings.Contains(o.Content, fmt.Sprintf("user %d\n", u.UID)) || o.ScreenshotPath == nil {
		t.Errorf("got %s", o.Content)
	}
	o = browsed(t, e, api.BrowseAction{URL: "file:///etc/shadow"})
	if !o.Error || strings.Contains(o.Content, "root:") {
		t.Errorf("a file of root's: got %s", o.Content)
	}
	if got := run(t, e, "", "stat -c %u "+dir+"/.browser_screenshots/*").Content; strings.Trim(got, fmt.Sprintf("%d\n", u.UID)) != "" {
		t.Errorf("the screenshots are %q's", got)
	}
}

// Without Chromium pages are fetched, with the rights of the sandbox's user.
func TestFetch(t *testing.T) {
	t.Setenv("PATH", "/bin-without-a-browser")
	cfg := executor.Config{Browser: true, Shell: "/bin/sh"}
	if os.Geteuid() == 0 {
		cfg.User, cfg.WorkingDir = other(t), testhelp.PublicDir(t)
	}
	e, dir := start(t, cfg)
	url := site(t)
	if c := e.Capabilities(); !c["browse"].Available || c["browse_interactive"].Available || !strings.Contains(c["browse"].Detail, "apt-get install chromium") {
		t.Errorf("the capabilities are %+v", c)
	}
	o := browsed(t, e, api.BrowseAction{URL: url})
	if !strings.Contains(o.Content, "was fetched, and its scripts did not run") || !strings.Contains(o.Content, "# Directory listing for /\n\n[server.log](server.log)\n") ||
		o.Error || o.Screenshot != "" || o.ScreenshotPath != nil || o.LastBrowserAction != `goto("`+url+`")` {
		t.Errorf("got %+v", o)
	}
	uid := os.Geteuid()
	if cfg.User != nil {
		uid = int(cfg.User.UID)
	}
	if o = browsed(t, e, api.BrowseAction{URL: url + "/who"}); !strings.Contains(o.Content, fmt.Sprintf("user %d\n", uid)) {
		t.Errorf("whose connection it is: got %s, want %d", o.Content, uid)
	}
	testhelp.WriteFile(t, filepath.Join(dir, "a.html"), "<h1>local</h1>", 0o644)
	if o = browsed(t, e, api.BrowseAction{URL: "a.html"}); !strings.Contains(o.Content, "# local") {
		t.Errorf("a file: got %s", o.Content)
	}
	for address, want := range map[string]string{
		url + "/missing":         "404 Not Found",
		url + "/away":            "unsupported protocol scheme",
		url + "/file":            "cannot be shown as text without a browser",
		"gopher://127.0.0.1/":    "is not an address of the form",
		"http+unix://socket/x":   "is not an address of the form",
		"missing.html":           "no such file",
		"/":                      "is not a regular file",
		"file:///proc/self/mem/": "Error: ",
	} {
		if o = browsed(t, e, api.BrowseAction{URL: address}); !o.Error || !strings.Contains(o.LastBrowserActionError, want) {
			t.Errorf("%s: got %q, want %q", address, o.LastBrowserActionError, want)
		}
	}
	if cfg.User != nil {
		if o = browsed(t, e, api.BrowseAction{URL: "file:///etc/shadow"}); !o.Error || strings.Contains(o.Content, "root:") {
			t.Errorf("a file of root's: got %s", o.Content)
		}
	}
	for _, a := range []api.Action{api.BrowseInteractiveAction{BrowserActions: "noop()"}, api.BrowseAction{URL: "http://127.0.0.1:1/", Reference: true}} {
		got, err := e.Do(t.Context(), api.Request{Action: a})
		if want := (api.ErrorObservation{Content: "Browser functionality is not supported or disabled.", Code: "unsupported"}); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", a.Kind(), got, err, want)
		}
	}
	got, err := e.Do(t.Context(), api.Request{Action: api.BrowseAction{URL: "http://127.0.0.1:1/"}})
	if o, ok := got.(api.ErrorObservation); err != nil || !ok || o.Code != "connection_refused" || !strings.Contains(o.Content, "connection refused") {
		t.Errorf("a port without a server: got %+v, %v", got, err)
	}
}

func TestBrowserOff(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{})
	for _, a := range []api.Action{api.BrowseAction{URL: "http://127.0.0.1:1/"}, api.BrowseInteractiveAction{BrowserActions: "noop()"}} {
		got, err := e.Do(t.Context(), api.Request{Action: a})
		if want := (api.ErrorObservation{Content: "Browser functionality is not supported or disabled.", Code: "unsupported"}); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", a.Kind(), got, err, want)
		}
		if c := e.Capabilities()[a.Kind()]; c.Available || !strings.Contains(c.Detail, "--no-enable-browser") {
			t.Errorf("%s: the capability is %+v", a.Kind(), c)
		}
	}
}
