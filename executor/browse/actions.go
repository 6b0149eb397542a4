package browse

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp/kb"

	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/files"
)

// do carries out one call. The error is a *failure if the call is wrong or
// cannot succeed on this page.
func (c *chromium) do(ctx context.Context, call call) error {
	switch call.name {
	case "new_tab":
		return c.open(ctx)
	case "tab_focus":
		return c.focusTab(ctx, call.number(0))
	case "send_msg_to_user", "report_infeasible": // no chat exists
		return nil
	case "noop":
		return channel.Sleep(ctx, time.Duration(min(max(0, call.number(0)), 1e9))*time.Millisecond)
	}
	t, err := c.current(ctx)
	if err != nil {
		return err
	}
	switch call.name {
	case "goto":
		return t.navigate(ctx, call.text(0))
	case "go_back":
		return t.travel(ctx, -1)
	case "go_forward":
		return t.travel(ctx, 1)
	case "scroll":
		turn := wheel{input.DispatchMouseEventTypeMouseWheel, width / 2, height / 2, call.number(0), call.number(1)}
		return t.call(ctx, input.CommandDispatchMouseEvent, turn, nil)
	case "tab_close":
		return c.replace(ctx, t)
	case "drag_and_drop":
		return t.dragAndDrop(ctx, call.text(0), call.text(1))
	}
	e, err := t.element(ctx, call.text(0))
	if err != nil {
		return err
	}
	switch call.name {
	case "click":
		return e.click(ctx, 1, call.text(1), call.texts(2))
	case "dblclick":
		return e.click(ctx, 2, call.text(1), call.texts(2))
	case "hover":
		_, err := e.moveTo(ctx, 0)
		return err
	case "fill":
		return e.fill(ctx, call.text(1))
	case "clear":
		return e.fill(ctx, "")
	case "focus":
		return e.run(ctx, focusScript)
	case "press":
		return e.press(ctx, call.text(1))
	case "select_option":
		return e.run(ctx, selectScript, call.texts(1))
	case "upload_file":
		return e.upload(ctx, call.texts(1))
	}
	return fmt.Errorf("the call %s of the table is not implemented", call.name)
}

func (c *chromium) focusTab(ctx context.Context, index float64) error {
	c.mu.Lock()
	n := len(c.tabs)
	ok := index == math.Trunc(index) && index >= 0 && int(index) < n
	if ok {
		c.active = c.tabs[int(index)]
	}
	t := c.active
	c.mu.Unlock()
	if !ok {
		return fail("ValueError", "there is no tab %v: there are %d, counted from 0", index, n)
	}
	if err := t.setUp(ctx); err != nil {
		return err
	}
	return tell(ctx, t, page.BringToFront, cdp.Empty{})
}

// expectLoad forgets earlier documents, and returns how many downloads have
// begun.
func (t *tab) expectLoad() (begun int) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	clear(t.loaders)
	return t.c.begun
}

// navigate opens a page. The reload of an earlier page, already under way, may
// replace it; then navigate opens it again.
func (t *tab) navigate(ctx context.Context, url string) error {
	for left := t.replacements(); ; {
		loader, err := t.load(ctx, url)
		if left--; err != nil || loader == "" || left < 0 || t.stays(ctx, loader) {
			return err
		}
	}
}

// replacements returns how often the earlier page may replace the new one: never if
// nothing is loading.
func (t *tab) replacements() int {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if t.loading || len(t.loaders) > manyDocuments {
		return maxLeave
	}
	return 0
}

// stays reports whether the tab still shows a document after leaveTime.
func (t *tab) stays(ctx context.Context, loader cdp.LoaderID) bool {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	return t.c.await(ctx, func() bool { return t.loader != loader }) != nil
}

// load opens a page once. It returns the loader of the document, "" if there is
// no new document.
func (t *tab) load(ctx context.Context, url string) (loader cdp.LoaderID, err error) {
	begun := t.expectLoad()
	r, err := ask(ctx, t, page.Navigate, page.NavigateParams{URL: url})
	switch refused := (*refusal)(nil); {
	case errors.As(err, &refused):
		return "", fail("Error", "%s: %s; a URL begins with http://, https:// or file://", refused.Message,
			repr(clip(url, 200)))
	case err != nil:
		return "", t.stopLoading(err, url)
	case r.IsDownload:
		return "", t.c.await(ctx, func() bool { return t.c.begun > begun })
	case r.ErrorText != "":
		return "", fail("Error", "%s at %s", r.ErrorText, clip(url, 200))
	case r.LoaderID == "": // navigation within the document
		return "", nil
	}
	// The page may navigate by itself at this moment, to another document.
	return r.LoaderID, t.stopLoading(t.awaitLoad(ctx, func() bool { return t.loaders[r.LoaderID] }), url)
}

// stopLoading stops a page that takes too long, so that the loaded part can be
// observed.
func (t *tab) stopLoading(err error, url string) error {
	if !errors.Is(err, errStepTime) {
		return err
	}
	_ = post(t.c.pipe, t.session, page.StopLoading, cdp.Empty{})
	return fail("TimeoutError", "%s did not load in the time of this step", clip(url, 200))
}

// travel goes back or forward in the history of the tab.
func (t *tab) travel(ctx context.Context, by int) error {
	history, err := ask(ctx, t, page.GetNavigationHistory, cdp.Empty{})
	if err != nil {
		return err
	}
	i := int(history.CurrentIndex) + by
	if i < 0 || i >= len(history.Entries) {
		return fail("Error", "there is no page %s this one", map[int]string{-1: "before", 1: "after"}[by])
	}
	before := locked(t.c, func() int { return t.commits })
	entry := history.Entries[i]
	if err := tell(ctx, t, page.NavigateToHistoryEntry, page.NavigateToHistoryEntryParams{EntryID: entry.ID}); err != nil {
		return err
	}
	return t.stopLoading(t.awaitLoad(ctx, func() bool { return t.commits > before }), entry.URL)
}

// wheel are the parameters of a mouseWheel event. Chromium requires both deltas, and
// input.DispatchMouseEventParams omits one that is 0.
type wheel struct {
	Type   input.DispatchMouseEventType `json:"type"`
	X      float64                      `json:"x"`
	Y      float64                      `json:"y"`
	DeltaX float64                      `json:"deltaX"`
	DeltaY float64                      `json:"deltaY"`
}

type point struct{ x, y float64 }

// mouse are the parameters of a mouse event; the method mouse sets type and
// place.
type mouse = input.DispatchMouseEventParams

func (t *tab) mouse(ctx context.Context, kind input.DispatchMouseEventType, at point, params mouse) error {
	params.Type, params.X, params.Y = kind, at.x, at.y
	return tell(ctx, t, input.DispatchMouseEvent, params)
}

const stateScript = `function() {
  if (!this.isConnected) return "is no longer on the page";
  if (this.nodeName === "OPTION") return "is an option: use select_option with the bid of its list";
  if (this.disabled) return "is disabled";
  return null;
}`

// moveTo moves the mouse to the middle of the element, which must be visible.
func (e element) moveTo(ctx context.Context, held int64) (point, error) {
	at, err := e.where(ctx)
	if err != nil {
		return at, err
	}
	return at, e.mouse(ctx, input.DispatchMouseEventTypeMouseMoved, at, mouse{Modifiers: held})
}

// where scrolls to the element and returns its middle.
func (e element) where(ctx context.Context) (point, error) {
	if err := tell(ctx, e.tab, dom.ScrollIntoViewIfNeeded, dom.ScrollIntoViewIfNeededParams{BackendNodeID: e.node}); err != nil {
		return point{}, e.invisible(err)
	}
	r, err := ask(ctx, e.tab, dom.GetContentQuads, dom.GetContentQuadsParams{BackendNodeID: e.node})
	if err != nil {
		return point{}, e.invisible(err)
	}
	for _, q := range r.Quads {
		if len(q) != 8 {
			continue
		}
		w, h := math.Hypot(q[2]-q[0], q[3]-q[1]), math.Hypot(q[6]-q[0], q[7]-q[1])
		if w*h >= 1 {
			return point{(q[0] + q[2] + q[4] + q[6]) / 4, (q[1] + q[3] + q[5] + q[7]) / 4}, nil
		}
	}
	return point{}, e.fail("is not visible")
}

func (e element) invisible(err error) error {
	if errors.As(err, new(*refusal)) {
		return e.fail("is not visible")
	}
	return err
}

// coverScript returns an error if another element would take the click.
const coverScript = `function() {
  const inside = (a, b) => { for (; b; b = b.parentNode || b.host) if (a === b) return true; return false; };
  const box = this.getClientRects()[0];
  if (!box) return null;
  const view = this.ownerDocument.defaultView;
  const root = this.getRootNode();
  const x = Math.min(Math.max(box.left + box.width / 2, 0), view.innerWidth - 1);
  const y = Math.min(Math.max(box.top + box.height / 2, 0), view.innerHeight - 1);
  const hit = root.elementFromPoint ? root.elementFromPoint(x, y) : null;
  if (!hit || inside(this, hit) || inside(hit, this)) return null;
  const label = hit.closest("label");
  if (label && label.control === this) return null;
  return "is covered by another element: <" + hit.nodeName.toLowerCase() + (hit.id ? " id=" + hit.id : "") + ">";
}`

// downloadScript reports whether a click on the element asks for a download. The page says nothing
// of it: only the browser does, when it begins.
const downloadScript = `function() { return !!this.closest("a[download][href], area[download][href]"); }`

func (e element) click(ctx context.Context, times int, button string, with []string) error {
	var held int64
	for _, name := range with {
		m, known := modifiers[name]
		if !known {
			return fail("ValueError", "there is no modifier %q: use Alt, Control, Meta, Shift", clip(name, 40))
		}
		held |= m
	}
	if button != "left" && button != "middle" && button != "right" {
		return fail("ValueError", "there is no button %q: use left, middle or right", clip(button, 40))
	}
	if err := e.run(ctx, stateScript); err != nil {
		return err
	}
	at, err := e.moveTo(ctx, held)
	if err != nil {
		return err
	}
	if err := e.run(ctx, coverScript); err != nil {
		return err
	}
	downloads, err := e.test(ctx, downloadScript)
	if err != nil {
		return err
	}
	begun := locked(e.c, func() int { return e.c.begun })
	for n := 1; n <= times; n++ {
		press := mouse{Button: input.MouseButton(button), ClickCount: int64(n), Modifiers: held}
		if err := e.mouse(ctx, input.DispatchMouseEventTypeMousePressed, at, press); err != nil {
			return err
		}
		// The click may have closed or replaced the page.
		if err := e.mouse(ctx, input.DispatchMouseEventTypeMouseReleased, at, press); err != nil && !errors.As(err, new(*refusal)) && !errors.Is(err, errTabGone) {
			return err
		}
	}
	if downloads && button == "left" {
		grace, cancel := context.WithTimeout(ctx, loadGrace)
		defer cancel()
		_ = e.c.await(grace, func() bool { return e.c.begun > begun }) // the page may have prevented it
	}
	return nil
}

// dragAndDrop presses the button on one element and releases it on another. The
// page handles the mouse events itself, or the browser starts a drag, which
// setInterceptDrags leaves to this function.
func (t *tab) dragAndDrop(ctx context.Context, from, to string) error {
	source, err := t.element(ctx, from)
	if err != nil {
		return err
	}
	goal, err := t.element(ctx, to)
	if err != nil {
		return err
	}
	if err := tell(ctx, t, input.SetInterceptDrags, input.SetInterceptDragsParams{Enabled: true}); err != nil {
		return err
	}
	t.c.mu.Lock()
	t.drag = nil
	t.c.mu.Unlock()
	start, err := source.moveTo(ctx, 0)
	if err != nil {
		return err
	}
	left := mouse{Button: input.MouseButtonLeft, ClickCount: 1, Buttons: 1}
	if err := t.mouse(ctx, input.DispatchMouseEventTypeMousePressed, start, left); err != nil {
		return err
	}
	end, err := goal.where(ctx)
	if err != nil {
		_ = t.mouse(ctx, input.DispatchMouseEventTypeMouseReleased, start, left)
		return err
	}
	dragged := func() *input.DragData { return locked(t.c, func() *input.DragData { return t.drag }) }
	halfway := point{(start.x + end.x) / 2, (start.y + end.y) / 2}
	for _, at := range []point{{start.x + 5, start.y + 5}, halfway, end, end} {
		data := dragged()
		if data == nil {
			err = t.mouse(ctx, input.DispatchMouseEventTypeMouseMoved, at, left)
		} else {
			err = t.dragTo(ctx, input.DispatchDragEventTypeDragOver, at, data)
		}
		if err != nil {
			return err
		}
	}
	if data := dragged(); data != nil {
		for _, kind := range []input.DispatchDragEventType{
			input.DispatchDragEventTypeDragEnter, input.DispatchDragEventTypeDragOver, input.DispatchDragEventTypeDrop,
		} {
			if err := t.dragTo(ctx, kind, end, data); err != nil {
				return err
			}
		}
	}
	return t.mouse(ctx, input.DispatchMouseEventTypeMouseReleased, end, left)
}

func (t *tab) dragTo(ctx context.Context, kind input.DispatchDragEventType, at point, data *input.DragData) error {
	return tell(ctx, t, input.DispatchDragEvent, input.DispatchDragEventParams{Type: kind, X: at.x, Y: at.y, Data: data})
}

const focusScript = `function() {
  if (!this.isConnected) return "is no longer on the page";
  this.focus();
  return null;
}`

// fillScript selects the text of a field, or sets a field that is not typed
// into. It returns true if the new text must be typed.
const fillScript = `function(value) {
  if (!this.isConnected) return "is no longer on the page";
  if (this.disabled || this.readOnly) return "is " + (this.disabled ? "disabled" : "read-only");
  const type = this.nodeName === "INPUT" ? this.type : "";
  if (["button", "checkbox", "file", "hidden", "image", "radio", "reset", "submit"].includes(type))
    return "is of type " + type + ", which cannot be filled; use click or upload_file";
  if (["color", "date", "datetime-local", "month", "range", "time", "week"].includes(type)) {
    this.focus();
    this.value = value;
    if (this.value !== value) return "does not take this value for its type " + type;
    this.dispatchEvent(new Event("input", {bubbles: true, composed: true}));
    this.dispatchEvent(new Event("change", {bubbles: true}));
    return null;
  }
  if (this.nodeName === "INPUT" || this.nodeName === "TEXTAREA") {
    this.focus();
    this.select();
    return true;
  }
  if (!this.isContentEditable) return "cannot be filled: it is not a text field";
  this.focus();
  const range = this.ownerDocument.createRange();
  range.selectNodeContents(this);
  const selection = this.ownerDocument.defaultView.getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
  return true;
}`

func (e element) fill(ctx context.Context, value string) error {
	typed, err := e.test(ctx, fillScript, value)
	if err != nil || !typed {
		return err
	}
	if value != "" {
		return tell(ctx, e.tab, input.InsertText, input.InsertTextParams{Text: value})
	}
	return e.pressKey(ctx, kb.Keys[[]rune(kb.Delete)[0]], 0)
}

func (e element) press(ctx context.Context, comb string) error {
	k, held, err := parseKeys(comb)
	if err != nil {
		return err
	}
	if err := e.run(ctx, focusScript); err != nil {
		return err
	}
	return e.pressKey(ctx, k, held)
}

// pressKey presses a key and releases it.
func (t *tab) pressKey(ctx context.Context, k *kb.Key, held int64) error {
	up := input.DispatchKeyEventParams{
		Type: input.DispatchKeyEventTypeKeyUp, Key: k.Key, Code: k.Code, WindowsVirtualKeyCode: k.Windows, Modifiers: held,
	}
	down := up
	down.Type = input.DispatchKeyEventTypeRawKeyDown
	if k.Text != "" && held&^modifiers["Shift"] == 0 {
		down.Type, down.Text = input.DispatchKeyEventTypeKeyDown, k.Text
	}
	if err := tell(ctx, t, input.DispatchKeyEvent, down); err != nil {
		return err
	}
	err := tell(ctx, t, input.DispatchKeyEvent, up)
	if errors.As(err, new(*refusal)) || errors.Is(err, errTabGone) { // the key may have closed or replaced the page
		return nil
	}
	return err
}

const selectScript = `function(wanted) {
  if (!this.isConnected) return "is no longer on the page";
  if (this.nodeName !== "SELECT") return "is not a list to select from";
  if (this.disabled) return "is disabled";
  if (wanted.length > 1 && !this.multiple) return "lets one option be selected and not " + wanted.length;
  const chosen = [];
  for (const w of wanted) {
    const clean = s => s.trim().replace(/\s+/g, " ");
    const all = [...this.options];
    const o = all.find(o => o.value === w) || all.find(o => clean(o.label) === clean(w));
    if (!o) return "has no option " + JSON.stringify(w) + "; it has " + all.slice(0, 50).map(o => JSON.stringify(o.label)).join(", ");
    if (o.disabled) return "has an option " + JSON.stringify(w) + " that is disabled";
    chosen.push(o);
  }
  this.focus();
  for (const o of this.options) o.selected = chosen.includes(o);
  this.dispatchEvent(new Event("input", {bubbles: true, composed: true}));
  this.dispatchEvent(new Event("change", {bubbles: true}));
  return null;
}`

const fileScript = `function(count) {
  if (this.nodeName !== "INPUT" || this.type !== "file") return "is not a field for files";
  if (this.disabled) return "is disabled";
  if (count > 1 && !this.multiple) return "takes one file and not " + count;
  return null;
}`

// upload puts files into a field; the user must be able to read them.
func (e element) upload(ctx context.Context, files []string) error {
	if err := e.run(ctx, fileScript, len(files)); err != nil {
		return err
	}
	paths := make([]string, 0, len(files))
	for _, file := range files {
		if !filepath.IsAbs(file) {
			file = filepath.Join(e.c.cfg.Dir, file)
		}
		if err := e.c.cfg.User.Do(func() error { return readable(file) }); err != nil {
			return fail("Error", "the file cannot be uploaded: %v", err)
		}
		paths = append(paths, file)
	}
	return tell(ctx, e.tab, dom.SetFileInputFiles, dom.SetFileInputFilesParams{Files: paths, BackendNodeID: e.node})
}

func readable(file string) error {
	f, err := files.OpenNonBlocking(file)
	if err != nil {
		return err
	}
	return f.Close()
}

// extension returns the extension of a name from the network; "" if it is
// unusual.
func extension(name string) string {
	ext := filepath.Ext(name)
	unusual := strings.IndexFunc(strings.TrimPrefix(ext, "."), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	if unusual >= 0 || len(ext) > 16 {
		return ""
	}
	return ext
}
