package browse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/actiond/actiond/executor/nowait"
)

// do carries out one call. The error is a *failure where the call could not be
// done as it is.
func (c *chromium) do(ctx context.Context, call call) error {
	switch call.name {
	case "new_tab":
		return c.open(ctx)
	case "tab_focus":
		return c.focusTab(ctx, call.number(0))
	case "send_msg_to_user", "report_infeasible": // nobody is told: there is no chat here
		return nil
	case "noop":
		return sleep(ctx, call.number(0))
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
		return t.scroll(ctx, call.number(0), call.number(1))
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
	return fmt.Errorf("the call %s is in the table and not here", call.name)
}

// sleep waits for so many milliseconds.
func sleep(ctx context.Context, ms float64) error {
	timer := time.NewTimer(time.Duration(min(max(0, ms), 1e9)) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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
	return t.call(ctx, "Page.bringToFront", nil, nil)
}

func (t *tab) committed() int {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.commits
}

// expectLoad forgets the documents of before, and returns how many downloads have
// begun.
func (t *tab) expectLoad() (begun int) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	clear(t.loaders)
	return t.c.begun
}

// navigate goes to a page. One that reloads itself all the time may come back
// over the page that was asked for, by a reload that was under way; then it is
// left again.
func (t *tab) navigate(ctx context.Context, url string) error {
	for goes := t.goesOn(); ; {
		loader, err := t.load(ctx, url)
		if goes--; err != nil || loader == "" || goes < 0 || t.stays(ctx, loader) {
			return err
		}
	}
}

// goesOn is how often the page may come back when it is left: never where nothing
// is under way.
func (t *tab) goesOn() int {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if t.loading || len(t.loaders) > manyDocuments {
		return maxLeave
	}
	return 0
}

// stays tells whether a document is still the tab's after a while.
func (t *tab) stays(ctx context.Context, loader string) bool {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	return t.c.await(ctx, func() bool { return t.loader != loader }) != nil
}

// load goes to a page once, and returns the loader of its document, "" where there
// is no new one.
func (t *tab) load(ctx context.Context, url string) (loader string, err error) {
	begun := t.expectLoad()
	var r struct {
		LoaderID   string `json:"loaderId"`
		ErrorText  string `json:"errorText"`
		IsDownload bool   `json:"isDownload"`
	}
	err = t.call(ctx, "Page.navigate", map[string]any{"url": url}, &r)
	switch refused := (*refusal)(nil); {
	case errors.As(err, &refused):
		return "", fail("Error", "%s: %s; a URL begins with http://, https:// or file://", refused.Message, repr(clip(url, 200)))
	case err != nil:
		return "", t.stopLoading(err, url)
	case r.IsDownload:
		return "", t.c.await(ctx, func() bool { return t.c.begun > begun })
	case r.ErrorText != "":
		return "", fail("Error", "%s at %s", r.ErrorText, clip(url, 200))
	case r.LoaderID == "": // a place in the same document
		return "", nil
	}
	// A page may go elsewhere by itself at this moment, which is another document.
	return r.LoaderID, t.stopLoading(t.awaitLoad(ctx, func() bool { return t.loaders[r.LoaderID] }), url)
}

// stopLoading stops a page that takes too long, so that what is there can be seen.
func (t *tab) stopLoading(err error, url string) error {
	if !errors.Is(err, errStepTime) {
		return err
	}
	_, _, _ = t.c.send(t.session, "Page.stopLoading", nil)
	return fail("TimeoutError", "%s did not load in the time of this step", clip(url, 200))
}

// travel goes back or forth in the history of the tab.
func (t *tab) travel(ctx context.Context, by int) error {
	var history struct {
		CurrentIndex int `json:"currentIndex"`
		Entries      []struct {
			ID  int    `json:"id"`
			URL string `json:"url"`
		} `json:"entries"`
	}
	if err := t.call(ctx, "Page.getNavigationHistory", nil, &history); err != nil {
		return err
	}
	i := history.CurrentIndex + by
	if i < 0 || i >= len(history.Entries) {
		return fail("Error", "there is no page %s this one", map[int]string{-1: "before", 1: "after"}[by])
	}
	before := t.committed()
	if err := t.call(ctx, "Page.navigateToHistoryEntry", map[string]any{"entryId": history.Entries[i].ID}, nil); err != nil {
		return err
	}
	return t.stopLoading(t.awaitLoad(ctx, func() bool { return t.commits > before }), history.Entries[i].URL)
}

// scroll turns the wheel in the middle of the page.
func (t *tab) scroll(ctx context.Context, dx, dy float64) error {
	return t.mouse(ctx, "mouseWheel", point{width / 2, height / 2}, map[string]any{"deltaX": dx, "deltaY": dy})
}

type point struct{ x, y float64 }

func (t *tab) mouse(ctx context.Context, kind string, at point, more map[string]any) error {
	params := map[string]any{"type": kind, "x": at.x, "y": at.y}
	maps.Copy(params, more)
	return t.call(ctx, "Input.dispatchMouseEvent", params, nil)
}

const stateScript = `function() {
  if (!this.isConnected) return "is no longer on the page";
  if (this.nodeName === "OPTION") return "is an option: use select_option with the bid of its list";
  if (this.disabled) return "is disabled";
  return null;
}`

// moveTo moves the mouse to the middle of the element, which must be visible.
func (e element) moveTo(ctx context.Context, held int) (point, error) {
	at, err := e.where(ctx)
	if err != nil {
		return at, err
	}
	return at, e.mouse(ctx, "mouseMoved", at, map[string]any{"modifiers": held})
}

// where scrolls to the element and says where it is.
func (e element) where(ctx context.Context) (point, error) {
	node := map[string]any{"backendNodeId": e.node}
	if err := e.call(ctx, "DOM.scrollIntoViewIfNeeded", node, nil); err != nil {
		return point{}, e.invisible(err)
	}
	var r struct {
		Quads [][8]float64 `json:"quads"`
	}
	if err := e.call(ctx, "DOM.getContentQuads", node, &r); err != nil {
		return point{}, e.invisible(err)
	}
	for _, q := range r.Quads {
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

// coverScript tells whether another element takes the clicks.
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

func (e element) click(ctx context.Context, times int, button string, with []string) error {
	held := 0
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
	for n := 1; n <= times; n++ {
		press := map[string]any{"button": button, "clickCount": n, "modifiers": held}
		if err := e.mouse(ctx, "mousePressed", at, press); err != nil {
			return err
		}
		// The page may go away while it is told of the end of the click.
		if err := e.mouse(ctx, "mouseReleased", at, press); err != nil && !errors.As(err, new(*refusal)) && !errors.Is(err, errTabGone) {
			return err
		}
	}
	return nil
}

// dragAndDrop presses the button on one element and releases it on another. What
// the page makes of that is its matter, or, for what can be dragged out of a page,
// the browser's, which asks us to go on.
func (t *tab) dragAndDrop(ctx context.Context, from, to string) error {
	source, err := t.element(ctx, from)
	if err != nil {
		return err
	}
	goal, err := t.element(ctx, to)
	if err != nil {
		return err
	}
	if err := t.call(ctx, "Input.setInterceptDrags", map[string]any{"enabled": true}, nil); err != nil {
		return err
	}
	t.setDrag(nil)
	start, err := source.moveTo(ctx, 0)
	if err != nil {
		return err
	}
	left := map[string]any{"button": "left", "clickCount": 1, "buttons": 1}
	if err := t.mouse(ctx, "mousePressed", start, left); err != nil {
		return err
	}
	end, err := goal.where(ctx)
	if err != nil {
		_ = t.mouse(ctx, "mouseReleased", start, left)
		return err
	}
	halfway := point{(start.x + end.x) / 2, (start.y + end.y) / 2}
	for _, at := range []point{{start.x + 5, start.y + 5}, halfway, end, end} {
		data := t.dragged()
		if data == nil {
			err = t.mouse(ctx, "mouseMoved", at, left)
		} else {
			err = t.dragTo(ctx, "dragOver", at, data)
		}
		if err != nil {
			return err
		}
	}
	if data := t.dragged(); data != nil {
		for _, kind := range []string{"dragEnter", "dragOver", "drop"} {
			if err := t.dragTo(ctx, kind, end, data); err != nil {
				return err
			}
		}
	}
	return t.mouse(ctx, "mouseReleased", end, left)
}

func (t *tab) dragTo(ctx context.Context, kind string, at point, data json.RawMessage) error {
	return t.call(ctx, "Input.dispatchDragEvent", map[string]any{"type": kind, "x": at.x, "y": at.y, "data": data}, nil)
}

func (t *tab) setDrag(data json.RawMessage) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	t.drag = data
}

func (t *tab) dragged() json.RawMessage {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.drag
}

const focusScript = `function() {
  if (!this.isConnected) return "is no longer on the page";
  this.focus();
  return null;
}`

// fillScript selects what a field holds, or sets fields that are not typed into.
// It answers "type" where the new text is to be typed.
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
    return "type";
  }
  if (!this.isContentEditable) return "cannot be filled: it is no field for text";
  this.focus();
  const range = this.ownerDocument.createRange();
  range.selectNodeContents(this);
  const selection = this.ownerDocument.defaultView.getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
  return "type";
}`

func (e element) fill(ctx context.Context, value string) error {
	err := e.run(ctx, fillScript, value)
	if err == nil || err.Error() != e.fail("type").Error() {
		return err
	}
	if value != "" {
		return e.call(ctx, "Input.insertText", map[string]any{"text": value}, nil)
	}
	return e.strike(ctx, namedKeys["Delete"], 0)
}

func (e element) press(ctx context.Context, comb string) error {
	k, held, err := parseKeys(comb)
	if err != nil {
		return err
	}
	if err := e.run(ctx, focusScript); err != nil {
		return err
	}
	return e.strike(ctx, k, held)
}

// strike presses a key and lets it go.
func (t *tab) strike(ctx context.Context, k key, held int) error {
	down := map[string]any{
		"type": "rawKeyDown", "key": k.key, "code": k.code, "windowsVirtualKeyCode": k.number, "modifiers": held,
	}
	if text := k.text; text != "" && held&^shift == 0 {
		down["type"], down["text"] = "keyDown", text
	}
	if err := t.call(ctx, "Input.dispatchKeyEvent", down, nil); err != nil {
		return err
	}
	up := map[string]any{"type": "keyUp", "key": k.key, "code": k.code, "windowsVirtualKeyCode": k.number, "modifiers": held}
	err := t.call(ctx, "Input.dispatchKeyEvent", up, nil)
	if errors.As(err, new(*refusal)) || errors.Is(err, errTabGone) { // the key may have led elsewhere
		return nil
	}
	return err
}

const selectScript = `function(wanted) {
  if (!this.isConnected) return "is no longer on the page";
  if (this.nodeName !== "SELECT") return "is no list to select from";
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
  if (this.nodeName !== "INPUT" || this.type !== "file") return "is no field for files";
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
		if err := e.c.cfg.As(func() error { return readable(file) }); err != nil {
			return fail("Error", "the file cannot be uploaded: %v", err)
		}
		paths = append(paths, file)
	}
	return e.call(ctx, "DOM.setFileInputFiles", map[string]any{"files": paths, "backendNodeId": e.node}, nil)
}

func readable(file string) error {
	f, err := nowait.Open(file)
	if err != nil {
		return err
	}
	return f.Close()
}

// extension is that of a name which somebody else gave; "" if it is an odd one.
func extension(name string) string {
	ext := filepath.Ext(name)
	odd := strings.IndexFunc(strings.TrimPrefix(ext, "."), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	if odd >= 0 || len(ext) > 16 {
		return ""
	}
	return ext
}
