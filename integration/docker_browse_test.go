//go:build integration

package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	imagepkg "image"
	"image/png"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/sandbox"
)

// browserBox is a sandbox with Chromium that is spoken to as the client of the
// protocol does it: whole envelopes, with a time limit in each.
type browserBox struct {
	*testing.T
	s   *sandbox.Sandbox
	key string
}

func newBrowserBox(t *testing.T, spec sandbox.Spec) *browserBox {
	t.Helper()
	spec.Image = image(t, browserImage)
	s := create(t, testHost(t), spec)
	key := keyOf(t, s)
	return &browserBox{t, s, key}
}

// observed is what of an observation is looked at.
type observed struct {
	Observation string
	Content     string
	Extras      struct {
		URL, Screenshot, ScreenshotPath string `json:",omitempty"`
		Metadata                        struct {
			ExitCode int `json:"exit_code"`
		}
		OpenPages  []string       `json:"open_pages_urls"`
		Active     int            `json:"active_page_index"`
		Action     string         `json:"last_browser_action"`
		Wrong      string         `json:"last_browser_action_error"`
		Focused    string         `json:"focused_element_bid"`
		Tree       map[string]any `json:"axtree_object"`
		Properties map[string]any `json:"extra_element_properties"`
		FilePath   string         `json:"file_path"`
		Error      bool
	}
}

// act sends an action; seconds are its limit.
func (b *browserBox) act(seconds float64, action string, args map[string]any) observed {
	b.Helper()
	args["thought"], args["security_risk"] = "", -1
	body, err := call(b.Context(), b.s.Dial, b.key, http.MethodPost, "/execute_action", map[string]any{"action": map[string]any{
		"id": 12, "timestamp": "2025-01-01T00:00:00.000000", "source": "agent", "message": "an action",
		"action": action, "args": args, "timeout": seconds,
	}})
	if err != nil {
		b.Fatal(err)
	}
	var o observed
	if err := json.Unmarshal(body, &o); err != nil {
		b.Fatalf("%v: %s", err, body)
	}
	return o
}

// run runs a command that must end well.
func (b *browserBox) run(command string) string {
	b.Helper()
	o := b.act(120, "run", map[string]any{
		"command": command, "is_input": false, "blocking": false, "is_static": false, "cwd": nil, "hidden": false, "confirmation_state": "confirmed",
	})
	if o.Observation != "run" || o.Extras.Metadata.ExitCode != 0 {
		b.Fatalf("%s: got %s, %s, exit code %d", command, o.Observation, o.Content, o.Extras.Metadata.ExitCode)
	}
	return o.Content
}

func (b *browserBox) open(url string) observed {
	b.Helper()
	return b.act(120, "browse", map[string]any{"url": url, "return_axtree": false})
}

// try runs a program of browser calls, which may go wrong.
func (b *browserBox) try(seconds float64, program string) observed {
	b.Helper()
	return b.act(seconds, "browse_interactive", map[string]any{"browser_actions": program, "browsergym_send_msg_to_user": "", "return_axtree": true})
}

// do runs a program of browser calls that must go well.
func (b *browserBox) do(program string) observed {
	b.Helper()
	o := b.try(120, program)
	if o.Observation != "browse" || o.Extras.Error || o.Extras.Wrong != "" {
		b.Fatalf("%s: got %s, the error %q and\n%s", program, o.Observation, o.Extras.Wrong, o.Content)
	}
	return o
}

// put writes a file into the workspace.
func (b *browserBox) put(name, content string) {
	b.Helper()
	if _, err := clientOf(b, b.s).Upload(b.Context(), "/workspace", name, strings.NewReader(content), false); err != nil {
		b.Fatal(err)
	}
}

// serve has the sandbox serve its workspace, as the tests of the protocol do it.
func (b *browserBox) serve() {
	b.Helper()
	if got := b.run("python3 -m http.server 8000 > server.log 2>&1 &"); !strings.Contains(got, "[1]") {
		b.Errorf("the server: got %q", got)
	}
	b.run("until curl -sfo /dev/null localhost:8000; do sleep 0.1; done")
}

func (b *browserBox) want(o observed, parts ...string) {
	b.Helper()
	for _, part := range parts {
		if !strings.Contains(o.Content, part) {
			b.Errorf("there is no %q in\n%s", part, o.Content)
		}
	}
}

// elements reads the tree as the tests of the protocol do: what follows a bid, on
// its line and on those without one, describes it.
func elements(content string) (bids []string, says map[string]string) {
	says = map[string]string{}
	_, tree, _ := strings.Cut(content, "BEGIN accessibility tree")
	tree, _, _ = strings.Cut(tree, "END accessibility tree")
	for line := range strings.Lines(tree) {
		line = strings.TrimSpace(line)
		if m := bidLine.FindStringSubmatch(line); m != nil {
			bids, says[m[1]] = append(bids, m[1]), m[2]
		} else if len(bids) > 0 {
			says[bids[len(bids)-1]] += " " + line
		}
	}
	return bids, says
}

var bidLine = regexp.MustCompile(`^\[([a-zA-Z0-9]+)\]\s*(.*)`)

func (b *browserBox) bid(o observed, text string) string {
	b.Helper()
	bids, says := elements(o.Content)
	for _, bid := range bids {
		if strings.Contains(strings.ToLower(says[bid]), strings.ToLower(text)) {
			return bid
		}
	}
	b.Fatalf("there is no %q in\n%s", text, o.Content)
	return ""
}

// wantSaid holds that the element with that bid is described so.
func (b *browserBox) wantSaid(o observed, bid string, one ...string) {
	b.Helper()
	_, says := elements(o.Content)
	for _, text := range one {
		if strings.Contains(says[bid], text) {
			return
		}
	}
	b.Errorf("got %q, want one of %q", says[bid], one)
}

func newPortBox(t *testing.T) *browserBox {
	t.Helper()
	h := testHost(t, func(c *docker.Config) { c.Transport = "port" })
	s := create(t, h, sandbox.Spec{Image: image(t, browserImage)})
	key := keyOf(t, s)
	return &browserBox{t, s, key}
}

// TestDockerBrowse has every assertion of the browser tests of the protocol
// (docs/reference/openhands-protocol.md, section 11), each in a sandbox of its own.
func TestDockerBrowse(t *testing.T) {
	t.Parallel()
	image(t, browserImage)
	for _, c := range []struct {
		name string
		test func(b *browserBox)
	}{
		{"simple", browseSimply},
		{"navigation", browseBackAndForth},
		{"form", browseForm},
		{"interactive", browseByKeys},
		{"upload", browseUpload},
		{"pdf", browsePDF},
		{"png", browsePNG},
		{"download", browseDownload},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(newBrowserBox(t, sandbox.Spec{}))
		})
	}
	t.Run("disabled", func(t *testing.T) {
		t.Parallel()
		b := newBrowserBox(t, sandbox.Spec{Flags: []string{"--no-enable-browser"}})
		b.serve()
		if o := b.open("http://localhost:8000"); o.Observation != "error" || !strings.Contains(o.Content, "Browser functionality is not supported or disabled") {
			t.Errorf("got %+v", o)
		}
	})
}

func browseSimply(b *browserBox) {
	b.serve()
	o := b.open("http://localhost:8000")
	b.want(o, "Directory listing for /", "server.log")
	x := o.Extras
	if o.Observation != "browse" || x.Error || !strings.Contains(x.URL, "http://localhost:8000") || x.Active != 0 || x.Wrong != "" ||
		fmt.Sprint(x.OpenPages) != "[http://localhost:8000/]" || x.Action != `goto("http://localhost:8000")` {
		b.Errorf("got %+v", o)
	}
	b.run("rm -rf server.log")
	// The tests of the protocol count what a workspace holds.
	if got := b.run("ls -d .downloads"); got != ".downloads" {
		b.Errorf("got %q", got)
	}
}

func browseBackAndForth(b *browserBox) {
	for n, other := range map[string]string{"1": "2", "2": "1"} {
		b.put("page"+n+".html", fmt.Sprintf(`<!DOCTYPE html><html><head><title>Page %s</title></head><body><h1>Page %[1]s</h1><a href="page%s.html">Go on</a></body></html>`, n, other))
	}
	b.serve()
	for _, step := range []struct{ program, page string }{
		{`goto("http://localhost:8000/page1.html")`, "1"},
		{"noop(500)", "1"},
		{`goto("http://localhost:8000/page2.html")`, "2"},
		{"go_back()", "1"},
		{"go_forward()", "2"},
	} {
		o := b.do(step.program)
		b.want(o, "Page "+step.page)
		if !strings.Contains(o.Extras.URL, "http://localhost:8000/page"+step.page+".html") {
			b.Errorf("%s: got %s, want page %s", step.program, o.Extras.URL, step.page)
		}
	}
}

func browseForm(b *browserBox) {
	b.put("form.html", `
		<!DOCTYPE html>
		<html><head><title>Test Form</title></head><body>
			<h1>Test Form</h1>
			<form id="test-form">
				<input type="text" name="text" placeholder="Enter text">
				<textarea name="message" placeholder="Enter message"></textarea>
				<select name="option">
					<option value="">Select an option</option><option value="option1">Option 1</option>
					<option value="option2">Option 2</option><option value="option3">Option 3</option>
				</select>
				<button type="button" id="test-button">Test Button</button><input type="submit" value="Submit">
			</form>
			<div id="result"></div>
			<script>document.getElementById('test-button').onclick = () => document.getElementById('result').innerHTML = 'Button clicked!'</script>
		</body></html>`)
	b.serve()
	o := b.do(`goto("http://localhost:8000/form.html")`)
	b.want(o, "Test Form")
	// Agents read the nodes with BrowserGym, which begins at the first one.
	nodes, _ := o.Extras.Tree["nodes"].([]any)
	if len(nodes) == 0 || fmt.Sprint(nodes[0].(map[string]any)["role"]) != "map[value:RootWebArea]" || o.Extras.Properties[b.bid(o, "Enter text")] == nil {
		b.Errorf("got the nodes %v and the properties %v", o.Extras.Tree, o.Extras.Properties)
	}
	input, message, list, button := b.bid(o, "Enter text"), b.bid(o, "Enter message"), b.bid(o, "combobox"), b.bid(o, "Test Button")
	if input == button {
		b.Errorf("two elements have the bid %s:\n%s", input, o.Content)
	}
	o = b.do(fmt.Sprintf("fill(\"%s\", \"Hello World\")\nfill(\"%s\", \"This is a test message\")", input, message))
	b.wantSaid(o, input, "Hello World")
	b.wantSaid(o, message, "This is a test message")
	b.wantSaid(b.do(fmt.Sprintf(`select_option("%s", "option2")`, list)), list, "option2", "Option 2")
	o = b.do(fmt.Sprintf(`click("%s")`, button))
	b.bid(o, "Button clicked!")
	o = b.do(fmt.Sprintf(`clear("%s")`, input))
	b.wantSaid(o, input, "Enter text", "textbox")
	if _, says := elements(o.Content); strings.Contains(says[input], "Hello World") {
		b.Errorf("after clear: got %q", says[input])
	}
}

func browseByKeys(b *browserBox) {
	b.put("scroll.html", `
		<!DOCTYPE html>
		<html><head><title>Scroll Test</title><style>
			body { margin: 0; padding: 20px; }
			.content { height: 2000px; background: linear-gradient(to bottom, #ff0000, #0000ff); }
			.hover-target { width: 200px; height: 100px; background: #ccc; margin: 20px; border: 2px solid #000; cursor: pointer; }
			.hover-target:hover { background: #ffff00; }
			#focus-input { margin: 20px; padding: 10px; font-size: 16px; }
		</style></head><body>
			<h1>Interactive Test Page</h1>
			<div class="hover-target" id="hover-div">Hover over me</div>
			<input type="text" id="focus-input" placeholder="Focus me and type">
			<div class="content"><p>This is a long scrollable page...</p><p style="margin-top: 500px;">Middle content</p>
				<p style="margin-top: 500px;" id="bottom-content">Bottom content</p></div>
		</body></html>`)
	b.serve()
	b.want(b.do(`goto("http://localhost:8000/scroll.html")`), "Interactive Test Page")
	o := b.do("scroll(0, 300)")
	if !strings.Contains(o.Extras.Action, "scroll(0, 300)") {
		b.Errorf("got %q", o.Extras.Action)
	}
	hover, input := b.bid(o, "Hover over me"), b.bid(o, "Focus me and type")
	b.do(fmt.Sprintf(`hover("%s")`, hover))
	if o = b.do(fmt.Sprintf(`focus("%s")`, input)); o.Extras.Focused != input {
		b.Errorf("got the focus on %q, want %q", o.Extras.Focused, input)
	}
	b.wantSaid(b.do(fmt.Sprintf(`fill("%s", "TestValue123")`, input)), input, "TestValue123")
	b.wantSaid(b.do(fmt.Sprintf(`press("%s", "Backspace")`, input)), input, "'TestValue12'")
	if o = b.do("scroll(0, -200)\nnoop(1000)\nscroll(0, 400)"); !strings.Contains(o.Extras.Action, "scroll(0, 400)") {
		b.Errorf("got %q", o.Extras.Action)
	}
}

func browseUpload(b *browserBox) {
	b.put("upload_test.txt", "This is a test file for upload testing.")
	b.put("upload.html", `
		<!DOCTYPE html>
		<html><head><title>File Upload Test</title></head><body>
			<h1>File Upload Test</h1>
			<form enctype="multipart/form-data">
				<input type="file" id="file-input" name="file" accept=".txt,.pdf,.png">
				<button type="button" onclick="handleUpload()">Upload File</button>
			</form>
			<div id="upload-result"></div>
			<script>
				function handleUpload() {
					const files = document.getElementById('file-input').files;
					document.getElementById('upload-result').innerHTML = files.length > 0 ? 'File selected: ' + files[0].name : 'No file selected';
				}
			</script>
		</body></html>`)
	b.serve()
	o := b.do(`goto("http://localhost:8000/upload.html")`)
	b.want(o, "File Upload Test")
	field, button := b.bid(o, "Choose File"), b.bid(o, "Upload File")
	b.wantSaid(b.do(fmt.Sprintf(`upload_file("%s", "/workspace/upload_test.txt")`, field)), field, "upload_test.txt")
	b.bid(b.do(fmt.Sprintf(`click("%s")`, button)), "File selected: upload_test.txt")
}

// view opens a file of the workspace in the viewer.
func (b *browserBox) view(name string) observed {
	b.Helper()
	if got := b.run("ls -alh"); !strings.Contains(got, name) {
		b.Errorf("got %s, want %s in it", got, name)
	}
	o := b.do(fmt.Sprintf(`goto("%s/view?path=/workspace/%s")`, strings.TrimSpace(b.run("cat /tmp/oh-server-url")), name))
	b.want(o, "[Action executed successfully.]", "Screenshot saved to: /workspace/.browser_screenshots/screenshot_")
	if got := b.run("ls /workspace/.browser_screenshots"); !strings.Contains(got, "screenshot_") || !strings.Contains(got, ".png") {
		b.Errorf("got %q", got)
	}
	return o
}

// Without the Internet the library that draws is not there; the canvas is.
func browsePDF(b *browserBox) {
	b.put("test_document.pdf", "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj 2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj "+
		"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]>>endobj\ntrailer<</Root 1 0 R>>\n")
	b.want(b.view("test_document.pdf"), "Canvas", "File Viewer - test_document.pdf")
}

func browsePNG(b *browserBox) {
	var picture bytes.Buffer
	if err := png.Encode(&picture, imagepkg.NewGray(imagepkg.Rect(0, 0, 400, 200))); err != nil {
		b.Fatal(err)
	}
	b.put("test_image.png", picture.String())
	b.want(b.view("test_image.png"), "File Viewer - test_image.png", "image 'test_image.png'")
}

func browseDownload(b *browserBox) {
	b.put("test_download.pdf", "%PDF-1.4\n1 0 obj\n/Type /Catalog\n%%EOF")
	b.put("download_test.html", `<!DOCTYPE html><html><head><title>Download Test</title></head><body><h1>Download Test Page</h1>
		<a href="/test_download.pdf" download="test_download.pdf" id="download-link">Download Test File</a></body></html>`)
	b.run("mkdir -p /workspace/.downloads")
	b.serve()
	o := b.open("http://localhost:8000/download_test.html")
	b.want(o, "Download Test Page")
	if o.Extras.Error || !strings.Contains(o.Extras.URL, "http://localhost:8000/download_test.html") {
		b.Errorf("got %+v", o)
	}
	// The client says "Location of downloaded file: " and the path.
	o = b.try(120, `goto("http://localhost:8000/test_download.pdf")`)
	if o.Observation != "download" || o.Extras.FilePath != "/workspace/file_1.pdf" ||
		o.Content != `Execution of the previous action goto("http://localhost:8000/test_download.pdf") resulted in a file download. The downloaded file is saved at location: /workspace/file_1.pdf` {
		b.Errorf("got %+v", o)
	}
	b.run("cmp /workspace/file_1.pdf test_download.pdf")
	page := b.do(`goto("http://localhost:8000/download_test.html")`)
	if o = b.try(120, fmt.Sprintf(`click("%s")`, b.bid(page, "Download Test File"))); o.Observation != "download" || o.Extras.FilePath != "/workspace/file_2.pdf" {
		b.Errorf("a link: got %+v", o)
	}
}

// The site of an enemy: pages by path, and a few answers that are none.
const hostileSite = `
import http.server, json, socketserver, time
pages = json.load(open("pages.json"))
class Site(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): pass
    def head(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items(): self.send_header(name.replace("_", "-"), value)
        self.end_headers()
    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/circle": return self.head(302, Location="/circle?" + str(time.time()))
        if path == "/auth": return self.head(401, WWW_Authenticate="Basic realm=x")
        if path == "/zeros":
            self.head(200, Content_Disposition="attachment; filename=zeros.bin")
            try:
                for n in range(10 << 10): self.wfile.write(bytes(1 << 20))
            except OSError: pass
            return
        if path == "/worker.js":
            self.head(200, Content_Type="text/javascript")
            return self.wfile.write(b"onfetch = e => e.respondWith(new Response('hijacked')); setInterval(() => fetch('/fine'), 1)")
        self.head(200 if path in pages else 404, Content_Type="text/html")
        self.wfile.write(pages.get(path, "").encode())
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer): daemon_threads = True
Server(("127.0.0.1", 9000), Site).serve_forever()
`

func (b *browserBox) serveHostile(pages map[string]string) {
	b.Helper()
	data, err := json.Marshal(pages)
	if err != nil {
		b.Fatal(err)
	}
	b.put("pages.json", string(data))
	b.put("site.py", hostileSite)
	// The page that takes all memory may cost the site its process.
	b.run("while :; do python3 site.py; sleep 0.1; done >site.log 2>&1 &")
	b.run("until curl -sfo /dev/null localhost:9000/fine; do sleep 0.1; done")
}

// TestDockerHostilePages opens pages that want to take the sandbox down. Shells
// answer meanwhile, the server stays small, and the browser comes back.
func TestDockerHostilePages(t *testing.T) { //nolint:tparallel // its pages share a browser, one after the other
	t.Parallel()
	b := newBrowserBox(t, sandbox.Spec{})
	b.serveHostile(map[string]string{
		"/fine":    "<title>Fine</title><h1>Fine</h1>",
		"/dialogs": `<script>setTimeout(() => { for (;;) alert("again") })</script>`,
		"/popups":  `<script>setTimeout(() => { for (let n = 0; n < 100000; n++) open("/fine?" + n) })</script>`,
		"/history": `<script>setInterval(() => { for (let n = 0; n < 1000; n++) history.pushState(n, "", "?" + "x".repeat(1000) + n) })</script>`,
		"/dom":     `<body><script>const more = () => { for (let n = 0; n < 100000; n++) document.body.append(document.createElement("button")); setTimeout(more) }; more()</script>`,
		"/workers": `<script>const spin = URL.createObjectURL(new Blob(["for (;;);"])); setInterval(() => { for (let n = 0; n < 20; n++) new Worker(spin) })</script>`,
		"/memory":  `<script>const all = []; setInterval(() => all.push(new Uint8Array(50 << 20).fill(1)))</script>`,
		"/reload":  `<meta http-equiv=refresh content=0><h1>Reload</h1>`,
		"/stay":    `<script>onbeforeunload = e => { e.preventDefault(); return "stay" }</script>`,
		"/print":   `<h1>Print</h1><script>for (let n = 0; n < 50; n++) print()</script>`,
		"/ask":     `<h1>Ask</h1><script>navigator.geolocation.getCurrentPosition(() => {}); Notification.requestPermission()</script>`,
	})
	b.do("noop(1)")
	stop, over, probe := make(chan struct{}), make(chan int), clientOf(t, b.s)
	go func() { // a second agent in a shell of its own
		count := 0
		for {
			select {
			case <-stop:
				over <- count
				return
			default:
			}
			o, err := probe.Do(t.Context(), api.Request{Session: "probe", Action: api.RunAction{Command: "/bin/echo fine"}})
			if ran, ok := o.(api.RunObservation); err != nil || !ok || ran.Content != "fine" {
				t.Errorf("a command beside the browser: got %+v, %v", o, err)
			}
			count++
		}
	}()
	for _, path := range []string{"/dialogs", "/popups", "/history", "/dom", "/workers", "/memory", "/reload", "/circle", "/auth", "/stay", "/print", "/ask"} {
		t.Run(path[1:], func(t *testing.T) {
			b := &browserBox{t, b.s, b.key}
			o := b.try(6, `goto("http://localhost:9000`+path+`") noop(1000)`)
			for range 20 { // the page before may have ended the browser, which may then need longer to start
				if !strings.HasPrefix(o.Content, "The browser is still starting: nothing was done") {
					break
				}
				o = b.try(6, `goto("http://localhost:9000`+path+`") noop(1000)`)
			}
			if o.Observation != "browse" || len(o.Extras.OpenPages) > 16 || len(o.Content) > 2<<20 {
				t.Errorf("got %s with %d tabs and %d bytes: %.200q", o.Observation, len(o.Extras.OpenPages), len(o.Content), o.Content)
			}
			t.Logf("%.200q", o.Extras.Wrong)
			for range 4 { // it may take a step to learn that a page has crashed, or that the browser has
				if o = b.try(15, `goto("http://localhost:9000/fine")`); !o.Extras.Error {
					break
				}
			}
			if o.Extras.Error || !strings.Contains(o.Content, "heading 'Fine'") {
				t.Errorf("afterwards: got %s", o.Content)
			}
		})
	}
	close(stop)
	if count := <-over; count < 50 {
		t.Errorf("a shell answered %d times meanwhile, want 50 at least", count)
	}
	// It takes what downloads may have, and not the disk.
	b.want(b.try(120, `goto("http://localhost:9000/zeros")`), "was cancelled: all downloads together may have at most 1073741824 bytes")
	if got := b.run("du -sm /tmp /workspace 2>/dev/null | awk '$1 > 500'"); got != "" {
		t.Errorf("the downloads have left %s MiB", got)
	}
	// Its processes give way, and go before the server.
	if got := b.run(`for p in $(pgrep chromium); do awk '$19 < 1' /proc/$p/stat; done; awk '$1 < 200' /proc/$(pgrep -o chromium)/oom_score_adj`); got != "" {
		t.Errorf("these processes are not modest: %s", got)
	}
	var peak int
	got := b.run(`for p in /proc/[0-9]*; do read -r n < $p/comm; test "$n" = server && awk '/VmHWM/ { print $2 }' $p/status; done; true`)
	if _, err := fmt.Sscan(got, &peak); err != nil || peak > 300<<10 {
		t.Errorf("the server took %d KiB at most: %v", peak, err)
	}
	t.Logf("the server took %d KiB at most", peak)
}

// The page at /reach writes its attempts into the page.
const reach = `<title>Reach</title><h1>Reach</h1><pre></pre><iframe src="file:///etc/passwd"></iframe><script>
const say = text => document.querySelector("pre").textContent += text + "; ";
const tries = {
  api: () => fetch("http://localhost:8000/server_info"),
  command: () => fetch("http://localhost:8000/execute_action", {method: "POST", mode: "no-cors", body: JSON.stringify(
    {action: {action: "run", args: {command: "touch /workspace/pwned"}}})}),
  socket: () => new Promise((done, fail) => { const s = new WebSocket("ws://localhost:8000/v1/sessions/default/terminal"); s.onopen = done; s.onerror = fail }),
  file: () => fetch("file:///etc/passwd"),
  frame: async () => { await new Promise(done => setTimeout(done, 300)); if (frames[0].document.body.textContent === "") throw 0 },
  viewer: () => fetch("VIEWER/view?path=/workspace/secret.png"),
  rebound: () => fetch(NAMED + "/view?path=/workspace/secret.png", {mode: "no-cors"}).then(r => fetch(NAMED + "/")),
  picture: () => new Promise((done, fail) => { const i = new Image(); i.onload = done; i.onerror = fail; i.src = "VIEWER/view?path=/workspace/secret.png" }),
};
const NAMED = "VIEWER".replace("localhost", "rebound.localhost");
(async () => {
  for (const [name, attempt] of Object.entries(tries))
    await attempt().then(r => say(name + " " + (r && r.type || "done")), e => say(name + " refused"));
  say("over");
})();
</script>`

// TestDockerPageReaches has a page try to reach the server, the viewer and files.
func TestDockerPageReaches(t *testing.T) {
	t.Parallel()
	b := newPortBox(t)
	viewer := strings.TrimSpace(b.run("cat /tmp/oh-server-url"))
	b.put("secret.png", "secret")
	b.serveHostile(map[string]string{"/fine": "fine", "/reach": strings.ReplaceAll(reach, "VIEWER", viewer)})
	o := b.do(`goto("http://localhost:9000/reach")`)
	for range 30 {
		if strings.Contains(o.Content, "over") {
			break
		}
		o = b.do("noop(1000)")
	}
	// An opaque answer cannot be read, and was refused for want of a key.
	b.want(o, "api refused; command opaque; socket refused; file refused; frame refused; viewer refused; rebound refused; picture refused; over;")
	b.run("test ! -e /workspace/pwned")
	for _, name := range []string{"localhost", "rebound.localhost"} {
		at := strings.Replace(viewer, "localhost", name, 1) + "/view?path=/workspace/secret.png"
		o = b.try(60, fmt.Sprintf("goto('http://localhost:9000/fine')\ngoto('%s')", at))
		if shown := strings.Contains(o.Content, "File Viewer - secret.png"); shown != (name == "localhost") {
			t.Errorf("the viewer as %s: got %s", name, o.Content)
		}
	}
	pattern := "[" + b.key[:1] + "]" + b.key[1:]
	if got := b.run(`cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | grep -ac '` + pattern + `'; grep -rls '` + pattern + `' /tmp /workspace; true`); got != "0" {
		t.Errorf("got %q, want no place with the key", got)
	}
}
