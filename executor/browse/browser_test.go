package browse_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/png"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/browse"
	"github.com/actiond/actiond/internal/testhelp"
)

// pages are served to the browser.
var pages = map[string]string{
	"/one": `<title>One</title><h1>Page 1</h1><a href="/two">Go to <b>Page 2</b></a><img src="data:," alt="A picture">
		<table><tr><td>a</td><td>b</td></tr></table>`,
	"/two": `<title>Two</title><h1>Page 2</h1><a href="/one" target="_blank">new tab</a>`,
	"/form": `<title>Test Form</title><h1>Test Form</h1><form onsubmit="return false">
		<input id=text placeholder="Enter text"><textarea placeholder="Enter message"></textarea>
		<select id=list onchange="says(this.value)"><option value=option1>Option 1</option><option value=option2>Option 2</option></select>
		<input type=date aria-label=Day><input type=checkbox aria-label=Agree><input aria-label=Fixed readonly value=x>
		<div contenteditable role=textbox aria-label=Rich>old</div>
		<button id=button onclick="says('Button clicked!')">Test Button</button><button disabled>Disabled</button>
		<input type=password aria-label=Secret>
		</form><div id=said></div>
		<script>function says(s) { document.getElementById('said').textContent = s; }</script>`,
	"/mouse": `<title>Mouse</title><style>body { margin: 0 } div { width: 200px; height: 50px }</style>
		<div role=button aria-label=Target onmouseenter="log('entered')" ondblclick="log('twice')" oncontextmenu="log('right'); return false" onclick="log('click' + (event.shiftKey ? ' with shift' : ''))">x</div>
		<div role=button aria-label=Source draggable=true ondragstart="event.dataTransfer.setData('text/plain', 'cargo')">drag me</div>
		<div role=button aria-label=Goal ondragover="event.preventDefault()" ondrop="event.preventDefault(); log('dropped ' + event.dataTransfer.getData('text/plain'))">here</div>
		<div role=button aria-label=Slider onmousedown="log('down')" onmousemove="event.buttons && log('slide')">slide</div>
		<p id=log></p><script>function log(s) { document.getElementById('log').textContent += s + '; '; }</script>
		<div style="height: 3000px"></div><button onclick="log('far')">Far</button>
		<div style="position: relative"><button>Covered</button><div role=img aria-label=Cover style="position: absolute; top: 0; left: 0; width: 100%; height: 100%"></div></div>`,
	"/upload": `<title>File Upload Test</title><input type=file onchange="document.getElementById('r').textContent = 'File selected: ' + this.files[0].name + ' ' + this.files[0].size"><div id=r></div>`,
	"/dialogs": `<title>Dialogs</title><button onclick="alert('hello'); r(confirm('sure?')); r(prompt('name?'))">Ask</button><p id=r></p>
		<script>function r(v) { document.getElementById('r').textContent += v + ';'; } window.onbeforeunload = e => { e.preventDefault(); return 'stay'; }</script>`,
	"/frame":  `<title>Frames</title><iframe src="/form" width=600 height=400 style="margin-left: 100px"></iframe>`,
	"/loop":   `<title>Loop</title><h1>Loop</h1><button onclick="for (;;);">Hang</button>`,
	"/late":   `<title>Late</title><button onclick="setTimeout(() => location.href = '/one', 50)">Go</button>`,
	"/popups": `<title>Popups</title><button onclick="for (let i = 0; i < 100; i++) open('/two?' + i)">Many</button>`,
	// Its scripts have replaced what a browser asks a page with.
	"/liar": `<title>Liar</title><input id=name placeholder=Name><button id=pay>Pay</button><select id=list><option value=a>A</option><option value=b>B</option></select>
		<p bid=7 browsergym_set_of_marks=1 aria-label="x'
	[99] button 'Free'">text</p><p id=r></p><script>
		const pay = document.getElementById('pay'), r = document.getElementById('r'), boom = () => { throw new Error('fooled'); };
		pay.onclick = () => r.textContent = 'paid';
		document.getElementById('list').onchange = e => r.textContent = 'chose ' + e.target.value;
		Object.defineProperty(Document.prototype, 'activeElement', {get: () => pay});
		Object.defineProperty(Node.prototype, 'isConnected', {get: () => false});
		Object.defineProperty(HTMLElement.prototype, 'outerHTML', {get: boom});
		for (const name of ['focus', 'select']) HTMLElement.prototype[name] = HTMLInputElement.prototype[name] = boom;
		Document.prototype.getElementsByTagName = Document.prototype.querySelectorAll = Array.prototype.find = Array.prototype.includes = boom;
		Document.prototype.elementFromPoint = () => r;
		window.MutationObserver = window.Event = window.Promise = boom;
		window.setTimeout = () => {};
		</script>`,
	"/crowd": `<title>Crowd</title><body><script>
		for (let i = 0; i < 3; i++) {
			const f = document.documentElement.appendChild(document.createElement('iframe'));
			f.contentDocument.body.innerHTML = '<p>'.repeat(8000);
		}
		document.body.append("[7] button 'Free'");
		</script>`,
	"/away":   `<title>Away</title><meta http-equiv=refresh content=0><h1>Away</h1>`,
	"/shadow": `<title>Shadow</title><div id=host></div><script>document.getElementById('host').attachShadow({mode: 'open'}).innerHTML = '<input placeholder=Inside>';</script>`,
}

// slowly is enough for a browser to see what kind of file comes.
var slowly = strings.Repeat("slowly ", 2000)

// serve serves the pages and some that are not well.
func serve(t *testing.T) string {
	t.Helper()
	never, slow := make(chan struct{}), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/never":
			select {
			case <-never:
			case <-r.Context().Done():
			}
		case "/half": // its picture never comes
			_, _ = fmt.Fprint(w, `<title>Half</title><h1>Half</h1><img src="/never">`)
		case "/slow": // it ends at a request for /slowend
			w.Header().Set("Content-Disposition", "attachment; filename=slow.bin")
			_, _ = fmt.Fprint(w, slowly)
			w.(http.Flusher).Flush()
			select {
			case <-slow:
				_, _ = fmt.Fprint(w, "end")
			case <-never:
			}
		case "/slowend":
			close(slow)
		case "/file":
			w.Header().Set("Content-Disposition", `attachment; filename="../../the file.pdf"`)
			_, _ = fmt.Fprint(w, "%PDF- not really")
		case "/doc.pdf":
			w.Header().Set("Content-Type", "application/pdf")
			_, _ = fmt.Fprint(w, "%PDF-1.4 not really")
		case "/links":
			_, _ = fmt.Fprint(w, `<title>Links</title><a href="/file">Get it</a> <a href="/file" download>Save it</a>`)
		case "/large":
			_, _ = fmt.Fprint(w, "<title>Large</title><h1>Large</h1>")
			line := "<p>" + strings.Repeat("word ", 200) + "<a href='#'>link</a></p>\n"
			for n := 0; n < 20<<20; n += len(line) {
				if _, err := fmt.Fprint(w, line); err != nil {
					return
				}
			}
		case "/long":
			_, _ = fmt.Fprint(w, "<title>Long</title><pre>"+strings.Repeat("x", 2<<20))
		case "/text":
			w.Header().Set("Content-Type", "text/plain")
			_, _ = fmt.Fprint(w, "a_b *c*\n  <d>")
		case "/moved":
			http.Redirect(w, r, "/one", http.StatusFound)
		case "/circle":
			http.Redirect(w, r, "/circle", http.StatusFound)
		default:
			page, ok := pages[r.URL.Path]
			if !ok {
				w.WriteHeader(http.StatusNotFound)
				page = "<h1>Not here</h1>"
			}
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = fmt.Fprint(w, page)
		}
	}))
	t.Cleanup(func() {
		close(never)
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// start returns a browser and its working directory.
func start(t *testing.T, cfg browse.Config) (*browse.Browser, string) {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	cfg.Env = append(cfg.Env, path, "HOME=/nowhere")
	b := browse.New(cfg)
	if b.Program() == "" {
		t.Skip("Chromium is not installed: apt-get install chromium")
	}
	t.Cleanup(b.Close)
	return b, cfg.Dir
}

// step takes a step that may go wrong.
func step(t *testing.T, b *browse.Browser, s browse.Step) browse.Page {
	t.Helper()
	page, err := b.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// do takes a step that must not go wrong.
func do(t *testing.T, b *browse.Browser, program string) browse.Page {
	t.Helper()
	page := step(t, b, browse.Step{Program: program})
	if page.Error != "" {
		t.Fatalf("%s: %s\n%s", program, page.Error, page.Tree)
	}
	return page
}

// fails takes a step that must go wrong.
func fails(t *testing.T, b *browse.Browser, program, want string) browse.Page {
	t.Helper()
	page := step(t, b, browse.Step{Program: program})
	if !strings.Contains(page.Error, want) {
		t.Errorf("%s: got the error %q, want %q in it", program, page.Error, want)
	}
	return page
}

// bid finds an element by what its line in the tree says.
func bid(t *testing.T, page browse.Page, says string) string {
	t.Helper()
	for line := range strings.Lines(page.Tree) {
		m := regexp.MustCompile(`^\s*\[([a-zA-Z0-9]+)\] (.+)`).FindStringSubmatch(line)
		if m != nil && strings.Contains(m[2], says) {
			return m[1]
		}
	}
	t.Fatalf("there is no %q in the tree:\n%s", says, page.Tree)
	return ""
}

func wantTree(t *testing.T, page browse.Page, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(page.Tree, part) {
			t.Errorf("there is no %q in the tree:\n%s", part, page.Tree)
		}
	}
}

func TestNavigation(t *testing.T) {
	t.Parallel()
	b, _ := start(t, browse.Config{})
	url := serve(t)
	page := step(t, b, browse.Step{URL: url + "/one", Text: true})
	want := "# Page 1\n\n[Go to **Page 2**](/two)A picture\n\na | b"
	if page.Text != want || page.URL != url+"/one" || page.Error != "" || page.Tree != "" {
		t.Errorf("got %q at %s, %s, want %q", page.Text, page.URL, page.Error, want)
	}
	if len(page.OpenPages) != 1 || page.OpenPages[0] != url+"/one" || page.Active != 0 || page.Focused != "" {
		t.Errorf("got %q, %d, %q", page.OpenPages, page.Active, page.Focused)
	}
	for name, image := range map[string][]byte{"screenshot": page.Screenshot, "marks": page.Marks} {
		if c, err := png.DecodeConfig(bytes.NewReader(image)); err != nil || c.Width != 1280 || c.Height != 720 {
			t.Errorf("the %s: got %+v, %v", name, c, err)
		}
	}
	page = do(t, b, fmt.Sprintf("goto(%q)\nnoop(10)", url+"/two"))
	wantTree(t, page, "RootWebArea 'Two'", "heading 'Page 2'", "link 'new tab'", "clickable")
	if page = do(t, b, "go_back()"); page.URL != url+"/one" {
		t.Errorf("back: got %s", page.URL)
	}
	if page = do(t, b, "go_forward()"); page.URL != url+"/two" {
		t.Errorf("forth: got %s", page.URL)
	}
	fails(t, b, "go_forward()", "Error: there is no page after this one")
	page = do(t, b, "go_back()")
	if page = do(t, b, "click('"+bid(t, page, "Go to Page 2")+"')"); page.URL != url+"/two" {
		t.Errorf("a link: got %s", page.URL)
	}
	if page = do(t, b, fmt.Sprintf("goto(%q)", url+"/late")); page.URL != url+"/late" {
		t.Errorf("got %s", page.URL)
	}
	if page = do(t, b, "click('"+bid(t, page, "Go")+"')\nnoop(2000)"); page.URL != url+"/one" {
		t.Errorf("a page that goes away: got %s", page.URL)
	}
	fails(t, b, "goto('nonsense')", "Cannot navigate to invalid URL")
	fails(t, b, "goto('http://127.0.0.1:1/')", "Error: net::ERR_")
	if page = step(t, b, browse.Step{URL: url + "/text", Text: true}); page.Text != "a_b *c*\n  <d>" {
		t.Errorf("plain text: got %q", page.Text)
	}
}

func TestForm(t *testing.T) {
	t.Parallel()
	b, _ := start(t, browse.Config{})
	url := serve(t)
	page := do(t, b, "goto('"+url+"/form')")
	wantTree(t, page, "Test Form", "] textbox 'Enter text'", "] combobox ", "] button 'Test Button', clickable", "disabled=True")
	input, message, list := bid(t, page, "Enter text"), bid(t, page, "Enter message"), bid(t, page, "combobox")
	day, agree, rich := bid(t, page, "'Day'"), bid(t, page, "'Agree'"), bid(t, page, "'Rich'")
	button := bid(t, page, "Test Button")

	page = do(t, b, fmt.Sprintf("fill('%s', 'Hello \"World\"\\u00e9')\nfill('%s', 'This is a test\\nmessage')", input, message))
	wantTree(t, page, `value='Hello "World"é'`, `value='This is a test\nmessage'`)
	if bid(t, page, "Enter text") != input {
		t.Error("the bid of an element has changed")
	}
	page = do(t, b, fmt.Sprintf("select_option('%s', 'option2')\nclick('%s')", list, agree))
	wantTree(t, page, "'option2'", "value='Option 2'", "checked='true'")
	page = do(t, b, fmt.Sprintf("select_option('%s', ['Option 1'])\nfill('%s', '2026-11-21')\nfill('%s', 'new')", list, day, rich))
	wantTree(t, page, "'option1'", "'new'", "2026-11-21")
	wantTree(t, do(t, b, "click('"+button+"')"), "Button clicked!")
	if page = do(t, b, "clear('"+input+"')"); strings.Contains(page.Tree, "Hello") {
		t.Errorf("got\n%s\nwant an empty field", page.Tree)
	}

	page = do(t, b, "focus('"+input+"')")
	if page.Focused != input {
		t.Errorf("got the focus on %q, want %q", page.Focused, input)
	}
	wantTree(t, page, "'Enter text', clickable, focused")
	do(t, b, fmt.Sprintf("fill('%s', 'TestValue123')", input))
	wantTree(t, do(t, b, fmt.Sprintf("press('%s', 'Backspace')", input)), "value='TestValue12'")
	wantTree(t, do(t, b, fmt.Sprintf("press('%s', 'Control+a')\npress('%[1]s', 'x')\npress('%[1]s', 'Shift+y')\npress('%[1]s', '+')", input)), "value='xY+'")
	if page = do(t, b, "press('"+input+"', 'Tab')"); page.Focused != message {
		t.Errorf("after Tab: got the focus on %q, want %q", page.Focused, message)
	}

	for program, want := range map[string]string{
		"click('99999')":                                        `ValueError: there is no element with the bid "99999"`,
		"fill('" + button + "', 'x')":                           "cannot be filled",
		"fill('" + agree + "', 'x')":                            "is of type checkbox",
		"fill('" + day + "', 'tomorrow')":                       "does not take this value",
		"fill('" + bid(t, page, "Fixed") + "', 'x')":            "is read-only",
		"click('" + bid(t, page, "Disabled") + "')":             "is disabled",
		"select_option('" + list + "', 'option3')":              `has no option "option3"; it has "Option 1", "Option 2"`,
		"select_option('" + list + "', ['option1', 'option2'])": "lets one option be selected",
		"select_option('" + input + "', 'x')":                   "is not a list",
		"upload_file('" + input + "', '/etc/hostname')":         "is not a field for files",
		"press('" + input + "', 'Hyper+x')":                     "is no combination of keys",
		"press('" + input + "', 'Entre')":                       "there is no key",
		"click('" + input + "', button='top')":                  "there is no button",
		"clik('1')":                                             "NameError: there is no action clik",
		"click('1'":                                             "SyntaxError: line 1",
	} {
		fails(t, b, program, want)
	}
	// A call behind one that failed is not made, nothing of a program that is not understood.
	page = fails(t, b, fmt.Sprintf("fill('%s', 'one')\nclick('99999')\nfill('%[1]s', 'two')", input), "ValueError")
	wantTree(t, page, "value='one'")
	page = fails(t, b, fmt.Sprintf("fill('%s', 'three')\nclick(", input), "SyntaxError")
	wantTree(t, page, "value='one'")
	wantTree(t, do(t, b, fmt.Sprintf("clear('%s') press('%[1]s', 'KeyA') press('%[1]s', 'Digit7') press('%[1]s', 'Minus')", input)), "value='a7-'")
	if page = step(t, b, browse.Step{Program: "noop(1)", Nodes: true}); len(page.Nodes) == 0 || page.Elements[input] == nil {
		t.Errorf("got %d nodes and %v of the field", len(page.Nodes), page.Elements[input])
	}
}

// flatten writes the tree as clients do who are given its nodes (BrowserGym's
// flatten_axtree_to_str): from the first node down, by ids.
func flatten(t *testing.T, nodes []any) string {
	t.Helper()
	byID := map[any]map[string]any{}
	for _, n := range nodes {
		node := n.(map[string]any)
		if byID[node["nodeId"]] != nil {
			t.Errorf("two nodes have the id %v", node["nodeId"])
		}
		byID[node["nodeId"]] = node
	}
	value := func(of any) any { return of.(map[string]any)["value"] }
	var out strings.Builder
	var write func(node map[string]any, depth int)
	write = func(node map[string]any, depth int) {
		role := value(node["role"]).(string)
		if node["name"] != nil {
			fmt.Fprintf(&out, "%s[%v] %s %q", strings.Repeat(" ", depth), node["browsergym_id"], role, value(node["name"]))
			if node["value"] != nil {
				fmt.Fprintf(&out, " value=%v", value(node["value"]))
			}
			properties, _ := node["properties"].([]any)
			for _, p := range properties {
				fmt.Fprintf(&out, ", %v=%v", p.(map[string]any)["name"], value(p.(map[string]any)["value"]))
			}
			out.WriteByte('\n')
		}
		for _, child := range node["childIds"].([]any) {
			if byID[child] != nil {
				write(byID[child], depth+1)
			}
		}
	}
	write(nodes[0].(map[string]any), 0)
	return out.String()
}

// The tree as data has the page and its frames, and the bids also where no one
// has asked for lines.
func TestNodes(t *testing.T) {
	t.Parallel()
	b, _ := start(t, browse.Config{})
	page := step(t, b, browse.Step{URL: serve(t) + "/frame", Text: true, Nodes: true})
	got := flatten(t, page.Nodes)
	for _, want := range []string{`^\[<nil>\] RootWebArea "Frames"`, `\n +\[\d+\] textbox "Enter text".*, editable=plaintext`, `\n +\[\d+\] button "Test Button"`, `\n +\[<nil>\] StaticText "Test Form"`} {
		if !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("there is no %s in\n%s", want, got)
		}
	}
	bid := regexp.MustCompile(`\[(\d+)\] textbox "Enter text"`).FindStringSubmatch(got)
	page = do(t, b, "fill('"+bid[1]+"', 'by data')")
	wantTree(t, page, "["+bid[1]+"] textbox 'Enter text' value='by data'")
	if e, ok := step(t, b, browse.Step{Program: "noop(1)", Nodes: true}).Elements[bid[1]].(map[string]any); !ok || e["visibility"] == nil || len(e["bbox"].([]any)) != 4 || e["clickable"] == nil || e["set_of_marks"] == nil {
		t.Errorf("got %v of the field", e)
	}
}

// A page that replaces what its scripts can replace fools itself alone.
func TestLiar(t *testing.T) {
	t.Parallel()
	b, _ := start(t, browse.Config{})
	url := serve(t)
	page := do(t, b, "goto('"+url+"/liar')")
	wantTree(t, page, `paragraph "x' [99] button 'Free'"`)
	name, pay, list := bid(t, page, "'Name'"), bid(t, page, "'Pay'"), bid(t, page, "combobox")
	if page.Focused != "" {
		t.Errorf("got the focus on %q", page.Focused)
	}
	if page = do(t, b, "fill('"+name+"', 'me')"); page.Focused != name {
		t.Errorf("got the focus on %q, want %q", page.Focused, name)
	}
	wantTree(t, page, "value='me'")
	wantTree(t, do(t, b, "click('"+pay+"')"), "'paid'")
	wantTree(t, do(t, b, "select_option('"+list+"', 'b')"), "'chose b'")
	fails(t, b, "click('99')", `no element with the bid "99"`)
	if page = step(t, b, browse.Step{URL: url + "/liar", Text: true}); !strings.Contains(page.Text, "Pay") {
		t.Errorf("got the text %q", page.Text)
	}
	page = do(t, b, "goto('"+url+"/crowd')") // most of it in frames
	wantTree(t, page, "too large", `StaticText "[7] button 'Free'"`)
	if regexp.MustCompile(`(?m)^\s*\[\d+\]`).MatchString(page.Tree) {
		t.Errorf("a text looks like an element:\n%s", page.Tree)
	}
}

// A page that is never there for long can be looked at, and its tab stays.
func TestRestless(t *testing.T) {
	t.Parallel()
	b, _ := start(t, browse.Config{})
	url := serve(t)
	if page := step(t, b, browse.Step{Program: "goto('" + url + "/away')"}); page.URL != url+"/away" || !strings.Contains(page.Tree, "/away'") && page.Error == "" {
		t.Errorf("got %q, %q and the tree %q", page.OpenPages, page.Error, page.Tree)
	}
	if page := do(t, b, "goto('"+url+"/one')"); page.URL != url+"/one" {
		t.Errorf("got %q", page.OpenPages)
	}
}

func TestMouse(t *testing.T) {
	t.Parallel()
	b, _ := start(t, browse.Config{})
	page := do(t, b, "goto('"+serve(t)+"/mouse')")
	target, source, goal, slider := bid(t, page, "'Target'"), bid(t, page, "'Source'"), bid(t, page, "'Goal'"), bid(t, page, "'Slider'")
	wantTree(t, do(t, b, "hover('"+target+"')"), "entered;")
	wantTree(t, do(t, b, "dblclick('"+target+"')"), "click; click; twice;")
	wantTree(t, do(t, b, "click('"+target+"', button='right')"), "right;")
	wantTree(t, do(t, b, "click('"+target+"', modifiers=['Shift'])"), "click with shift;")
	wantTree(t, do(t, b, fmt.Sprintf("drag_and_drop('%s', '%s')", source, goal)), "dropped cargo;")
	wantTree(t, do(t, b, fmt.Sprintf("drag_and_drop('%s', '%s')", slider, target)), "down; slide;")
	wantTree(t, do(t, b, "click('"+bid(t, page, "'Far'")+"')"), "far;")
	fails(t, b, "click('"+bid(t, page, "'Covered'")+"')", "is covered by another element: <div>")
	before := do(t, b, "scroll(0, -10000)").Screenshot
	if after := do(t, b, "scroll(0, 300)\nnoop(300)").Screenshot; bytes.Equal(before, after) {
		t.Error("the page looks the same after it was scrolled")
	}
}

func TestFrames(t *testing.T) {
	t.Parallel()
	b, _ := start(t, browse.Config{})
	url := serve(t)
	page := do(t, b, "goto('"+url+"/frame')")
	wantTree(t, page, "Iframe", "Test Form")
	wantTree(t, do(t, b, "click('"+bid(t, page, "Test Button")+"')"), "Button clicked!")
	input := bid(t, page, "Enter text")
	page = do(t, b, fmt.Sprintf("fill('%s', 'in a frame')", input))
	wantTree(t, page, "value='in a frame'")
	if page.Focused != input {
		t.Errorf("got the focus on %q, want %q", page.Focused, input)
	}
	page = do(t, b, "goto('"+url+"/shadow')")
	input = bid(t, page, "Inside")
	if page = do(t, b, fmt.Sprintf("fill('%s', 'in the shadow')", input)); page.Focused != input {
		t.Errorf("got the focus on %q, want %q", page.Focused, input)
	}
	wantTree(t, page, "value='in the shadow'")
}

func TestUpload(t *testing.T) {
	t.Parallel()
	b, dir := start(t, browse.Config{})
	testhelp.WriteFile(t, filepath.Join(dir, "upload_test.txt"), "content", 0o600)
	page := do(t, b, "goto('"+serve(t)+"/upload')")
	field := bid(t, page, "Choose File")
	fails(t, b, "upload_file('"+field+"', 'missing.txt')", "no such file")
	fails(t, b, "upload_file('"+field+"', '/')", "not a regular file")
	fails(t, b, "upload_file('"+field+"', ['a', 'b'])", "takes one file and not 2")
	page = do(t, b, "upload_file('"+field+"', 'upload_test.txt')")
	wantTree(t, page, "File selected: upload_test.txt 7")
}

func TestDownload(t *testing.T) {
	t.Parallel()
	b, dir := start(t, browse.Config{})
	url := serve(t)
	check := func(page browse.Page, name, content string) {
		t.Helper()
		data, err := os.ReadFile(page.Download)
		if page.Error != "" || page.Download != filepath.Join(dir, name) || err != nil || string(data) != content {
			t.Errorf("got the file %q with %q, %v, the error %q and %q", page.Download, data, err, page.Error, page.Notes)
		}
	}
	check(do(t, b, "goto('"+url+"/file')"), "file_1.pdf", "%PDF- not really")
	check(step(t, b, browse.Step{URL: url + "/doc.pdf", Text: true}), "file_2.pdf", "%PDF-1.4 not really")
	page := do(t, b, "goto('"+url+"/links')")
	check(do(t, b, "click('"+bid(t, page, "Get it")+"')\nnoop(1000)"), "file_3.pdf", "%PDF- not really")
	check(do(t, b, "click('"+bid(t, page, "Save it")+"')"), "file_4.pdf", "%PDF- not really")
	if page = do(t, b, "noop(1)"); page.Download != "" || page.URL != url+"/links" {
		t.Errorf("the step after: got %q at %s", page.Download, page.URL)
	}
}

// A download that ends between two steps is told of.
func TestLateDownload(t *testing.T) {
	t.Parallel()
	b, dir := start(t, browse.Config{})
	url := serve(t)
	do(t, b, "noop(1)") // the start is part of a step's time
	page := step(t, b, browse.Step{Program: "goto('" + url + "/slow')", Timeout: 10 * time.Second})
	if page.Download != "" || len(page.Notes) != 1 || !strings.Contains(page.Notes[0], "'slow.bin' continues") {
		t.Fatalf("got %q, %q, %q", page.Download, page.Notes, page.Error)
	}
	response, err := http.Get(url + "/slowend")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	testhelp.Eventually(t, func() bool {
		files, err := filepath.Glob(filepath.Join(os.TempDir(), "actiond-browser-*", "downloads", "*"))
		return err == nil && slices.ContainsFunc(files, func(file string) bool {
			data, err := os.ReadFile(file)
			return err == nil && string(data) == slowly+"end" && !strings.HasSuffix(file, ".crdownload")
		})
	}, "the download is over")
	page = do(t, b, "noop(1)")
	if data, err := os.ReadFile(page.Download); page.Download != filepath.Join(dir, "file_1.bin") || string(data) != slowly+"end" {
		t.Errorf("got %q with %d bytes, %v, %q", page.Download, len(data), err, page.Notes)
	}
}

func TestTabs(t *testing.T) {
	t.Parallel()
	b, _ := start(t, browse.Config{})
	url := serve(t)
	page := do(t, b, "goto('"+url+"/one')\nnew_tab()\ngoto('"+url+"/two')")
	if page.Active != 1 || len(page.OpenPages) != 2 || page.OpenPages[0] != url+"/one" || page.URL != url+"/two" {
		t.Errorf("got tab %d of %q", page.Active, page.OpenPages)
	}
	page = do(t, b, "click('"+bid(t, page, "new tab")+"')\nnoop(1000)")
	if page.Active != 2 || page.URL != url+"/one" {
		t.Errorf("a link to a new tab: got tab %d of %q", page.Active, page.OpenPages)
	}
	if page = do(t, b, "tab_focus(1)"); page.Active != 1 || page.URL != url+"/two" {
		t.Errorf("got tab %d of %q", page.Active, page.OpenPages)
	}
	fails(t, b, "tab_focus(3)", "ValueError: there is no tab 3: there are 3, counted from 0")
	fails(t, b, "tab_focus(0.5)", "ValueError: there is no tab 0.5")
	if page = do(t, b, "tab_close()"); page.Active != 0 || len(page.OpenPages) != 2 {
		t.Errorf("got tab %d of %q", page.Active, page.OpenPages)
	}
	page = do(t, b, "tab_close()\ntab_close()")
	if len(page.OpenPages) != 1 || page.URL != "about:blank" {
		t.Errorf("got tab %d of %q, want a blank one", page.Active, page.OpenPages)
	}
	page = do(t, b, "goto('"+url+"/popups')")
	if page = do(t, b, "click('"+bid(t, page, "Many")+"')\nnoop(1000)"); len(page.OpenPages) > 16 {
		t.Errorf("a page opened %d tabs", len(page.OpenPages))
	}
}

func TestDialogs(t *testing.T) {
	t.Parallel()
	b, _ := start(t, browse.Config{})
	url := serve(t)
	page := do(t, b, "goto('"+url+"/dialogs')")
	page = do(t, b, "click('"+bid(t, page, "Ask")+"')")
	wantTree(t, page, "false;null;")
	for i, want := range []string{"alert), which was dismissed: 'hello'", "confirm), which was dismissed: 'sure?'", "prompt), which was dismissed: 'name?'"} {
		if len(page.Notes) != 3 || !strings.Contains(page.Notes[i], want) {
			t.Errorf("got the notes %q, want %q", page.Notes, want)
		}
	}
	if page = do(t, b, "goto('"+url+"/one')"); page.URL != url+"/one" || page.Notes != nil {
		t.Errorf("a page that wants to stay: got %s, %q", page.URL, page.Notes)
	}
}

// Pages that do not come, go on for ever, or die, end with the step.
func TestBadPages(t *testing.T) {
	t.Parallel()
	b, _ := start(t, browse.Config{})
	url := serve(t)
	do(t, b, "goto('"+url+"/one')")
	page := step(t, b, browse.Step{Program: "goto('" + url + "/never')", Timeout: 4 * time.Second})
	if !strings.HasPrefix(page.Error, "TimeoutError: "+url+"/never did not load") {
		t.Errorf("a page that never loads: got %q", page.Error)
	}
	if page = step(t, b, browse.Step{Program: "noop(100000)", Timeout: time.Second}); !strings.HasPrefix(page.Error, "TimeoutError: noop") {
		t.Errorf("a long noop: got %q", page.Error)
	}
	page = do(t, b, "goto('"+url+"/half')")
	wantTree(t, page, "Half")

	page = do(t, b, "goto('"+url+"/loop')")
	page = step(t, b, browse.Step{Program: "click('" + bid(t, page, "Hang") + "')", Timeout: 4 * time.Second})
	if !strings.HasPrefix(page.Error, "TimeoutError: click") {
		t.Errorf("a page that hangs: got %q", page.Error)
	}
	do(t, b, "goto('"+url+"/one')")

	page = fails(t, b, "goto('chrome://crash')", "the page crashed")
	if page.Screenshot != nil {
		t.Error("there is a picture of a page that crashed")
	}
	if page = do(t, b, "goto('"+url+"/one')"); page.URL != url+"/one" {
		t.Errorf("after a crash: got %s", page.URL)
	}
}

func TestLargePages(t *testing.T) {
	t.Parallel()
	b, _ := start(t, browse.Config{})
	url := serve(t)
	page := step(t, b, browse.Step{URL: url + "/large", Text: true})
	if page.Error != "" || !strings.HasPrefix(page.Text, "# Large") || len(page.Text) > 1<<20+100 || len(page.Text) < 1<<19 {
		t.Errorf("got %d bytes, %q", len(page.Text), page.Error)
	}
	page = do(t, b, "noop(1)")
	if len(page.Tree) > 1<<20+5000 || !strings.Contains(page.Tree, "word word") || !strings.Contains(page.Tree, "too large") {
		t.Errorf("got a tree of %d bytes", len(page.Tree))
	}
	page = do(t, b, "goto('"+url+"/long')")
	if len(page.Tree) > 10_000 || !strings.Contains(page.Tree, "xxx") {
		t.Errorf("got a tree of %d bytes", len(page.Tree))
	}
	do(t, b, "goto('"+url+"/one')")
}

// processes lists what has a word in its environment.
func processes(t *testing.T, word string) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if data, err := os.ReadFile(file); err == nil && bytes.Contains(data, []byte(word)) {
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

func TestClose(t *testing.T) {
	t.Parallel()
	word := fmt.Sprintf("ACTIOND_TEST=close-%d", os.Getpid())
	b, _ := start(t, browse.Config{Env: []string{word}})
	url := serve(t)
	do(t, b, "goto('"+url+"/one')")
	if len(processes(t, word)) == 0 {
		t.Fatal("there is no browser to be seen")
	}
	busy := make(chan string, 1)
	go func() {
		page, err := b.Run(context.WithoutCancel(t.Context()), browse.Step{Program: "goto('" + url + "/never')"})
		if err != nil {
			page.Error = err.Error()
		}
		busy <- page.Error
	}()
	testhelp.Eventually(t, func() bool {
		_, err := b.Run(t.Context(), browse.Step{Program: "noop(1)", Timeout: time.Millisecond})
		return errors.Is(err, browse.ErrBusy)
	}, "a second step waits")
	b.Close()
	if wrong := <-busy; wrong == "" {
		t.Error("a step went well without its browser")
	}
	testhelp.Eventually(t, func() bool { return len(processes(t, word)) == 0 }, "all processes are gone")
	if _, err := b.Run(t.Context(), browse.Step{Program: "noop(1)"}); !errors.Is(err, browse.ErrClosed) {
		t.Errorf("got %v, want %v", err, browse.ErrClosed)
	}
}

// A browser that was killed, or stopped because it was idle, is replaced.
func TestLost(t *testing.T) {
	t.Parallel()
	word := fmt.Sprintf("ACTIOND_TEST=lost-%d", os.Getpid())
	b, _ := start(t, browse.Config{Env: []string{word}})
	url := serve(t)
	do(t, b, "goto('"+url+"/one')")
	testhelp.Eventually(t, func() bool {
		pids := processes(t, word)
		for _, pid := range pids {
			var n int
			_, _ = fmt.Sscan(pid, &n)
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
		return len(pids) == 0
	}, "all processes are gone")
	page := do(t, b, "goto('"+url+"/two')")
	if page.URL != url+"/two" || len(page.Notes) != 1 || !strings.Contains(page.Notes[0], "ended") {
		t.Errorf("got %s, %q", page.URL, page.Notes)
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	word := fmt.Sprintf("ACTIOND_TEST=idle-%d", os.Getpid())
	b, _ := start(t, browse.Config{Env: []string{word}, IdleTime: time.Nanosecond})
	do(t, b, "noop(1)")
	testhelp.Eventually(t, func() bool { return len(processes(t, word)) == 0 }, "the browser is stopped")
	page := do(t, b, "noop(1)")
	if len(page.Notes) != 1 || !strings.Contains(page.Notes[0], "was stopped after 1ns without a step") {
		t.Errorf("got %q", page.Notes)
	}
}

// A program in the browser's place may say what it likes: the caller gets an error.
func TestHostileBrowser(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"dies":           "exit 3",
		"complains":      "echo it is broken >&2; exit 1",
		"says too much":  "head -c 50000000 /dev/zero | tr '\\0' x >&4",
		"talks nonsense": "printf '{\\0[]\\0{\"id\":1}\\0{\"id\":99999}\\0{\"method\":\"Target.attachedToTarget\",\"params\":{}}\\0' >&4; cat <&3 >/dev/null",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			testhelp.WriteProgram(t, filepath.Join(dir, "chromium"), "#!/bin/sh\n"+script+"\n")
			b := browse.New(browse.Config{Env: []string{"PATH=" + dir + ":/usr/bin:/bin"}, Dir: dir})
			ctx := t.Context()
			if name == "talks nonsense" { // the others end by themselves
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, 3*time.Second)
				defer cancel()
			}
			_, err := b.Run(ctx, browse.Step{Program: "noop(1)"})
			if err == nil {
				t.Error("a step went well")
			}
			if name == "complains" && !strings.Contains(err.Error(), "it is broken") {
				t.Errorf("got %v, want what it said", err)
			}
			b.Close()
		})
	}
}

// A browser that takes its time to start does not keep Close waiting.
func TestCloseAtStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mute := "#!/bin/sh\ntouch " + dir + "/started\ncat <&3 >/dev/null\n"
	testhelp.WriteProgram(t, filepath.Join(dir, "chromium"), mute)
	b := browse.New(browse.Config{Env: []string{"PATH=" + dir + ":/usr/bin:/bin"}, Dir: dir})
	done := make(chan error, 1)
	go func() {
		_, err := b.Run(context.WithoutCancel(t.Context()), browse.Step{Program: "noop(1)"})
		done <- err
	}()
	testhelp.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(dir, "started"))
		return err == nil
	}, "the browser starts")
	b.Close()
	if err := <-done; !errors.Is(err, browse.ErrClosed) {
		t.Errorf("got %v, want %v", err, browse.ErrClosed)
	}
}

func TestAbsent(t *testing.T) {
	t.Parallel()
	b := browse.New(browse.Config{Env: []string{"PATH=/nowhere"}})
	defer b.Close()
	if _, err := b.Run(t.Context(), browse.Step{Program: "noop(1)"}); !errors.Is(err, browse.ErrAbsent) || b.Program() != "" {
		t.Errorf("got %v, want %v", err, browse.ErrAbsent)
	}
}
