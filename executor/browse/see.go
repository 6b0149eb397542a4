package browse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// maxText bounds the page in words.
	maxText = 1 << 20
	// aliveTime is how long a page may take for the simplest answer.
	aliveTime = 20 * time.Second
	// poseTime is how long a page may take for a picture.
	poseTime = 5 * time.Second
)

// maxElements is up to how many elements of a page are asked for one by one: the
// tree of 20,000 takes the browser seconds.
const maxElements = 20_000

// countScript counts the elements of a page and its frames.
var countScript = fmt.Sprintf(`(() => {
  let n = 0;
  const add = document => {
    n += document.getElementsByTagName("*").length;
    if (n > %d) return;
    for (const f of document.querySelectorAll("iframe, frame, object")) if (f.contentDocument) add(f.contentDocument);
  };
  add(document);
  return n;
})()`, maxElements)

// excerpt stands for the tree of a page that is too large for one.
func (t *tab) excerpt(ctx context.Context) string {
	var text string
	_ = t.evaluate(ctx, "document.body ? document.body.innerText.slice(0, 65536) : ''", &text)
	var out strings.Builder
	fmt.Fprintf(&out, "[The page is too large for an accessibility tree: it has more than %d elements. This is the beginning of its text.]", maxElements)
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			out.WriteString("\nStaticText " + repr(clip(line, maxName)))
		}
	}
	return out.String()
}

var (
	// errBlind says that the page answers nothing.
	errBlind = errors.New("the page does not answer")
	// errUnseen says that it answers, and changes faster than it can be looked at.
	errUnseen = fail("TimeoutError", "the page could not be looked at in the time of this step")
)

// see looks at the page. The error says why it cannot be looked at; a part that
// could not be had is left empty otherwise.
func (c *chromium) see(ctx context.Context, t *tab, s Step, page *Page) error {
	alive, cancel := context.WithTimeoutCause(ctx, aliveTime, errBlind)
	defer cancel()
	if err := t.call(alive, "Page.bringToFront", nil, nil); err != nil {
		return err
	}
	var count int
	switch err := t.evaluate(alive, countScript, &count); {
	case errors.As(err, new(*refusal)):
		return errUnseen // it was left each time
	case err != nil:
		return err
	}
	page.Screenshot = t.screenshot(ctx)
	page.Focused = t.focused(ctx)
	if s.Text {
		page.Text = shorten(t.markdown(ctx), maxText)
	}
	var elements map[int64]sight
	if count > maxElements {
		page.Tree = t.excerpt(ctx)
	} else {
		elements = t.elements(ctx)
	}
	if count <= maxElements && (!s.Text || s.Nodes) {
		tree := t.tree(ctx, elements)
		lines := tree.lines(maxText) // which names the elements
		if !s.Text {
			page.Tree = lines
		}
		if s.Nodes {
			page.Nodes, page.Elements = tree.data(), t.describe(elements)
		}
	}
	if page.Screenshot != nil {
		page.Marks = mark(page.Screenshot, t.marks(elements))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	page.URL, page.Active = t.url, slices.Index(c.tabs, t)
	for _, other := range c.tabs {
		page.OpenPages = append(page.OpenPages, other.url)
	}
	page.Notes = append(page.Notes, t.notes...)
	t.notes = nil
	switch {
	case t.crashed:
		return errCrashed
	case ctx.Err() != nil && page.Text == "" && page.Tree == "":
		return errUnseen
	}
	return nil
}

// screenshot returns a picture of what is visible, if the page holds still for
// one. A page that is left at that moment has the browser wait for ever, and the
// next one is seen.
func (t *tab) screenshot(ctx context.Context) []byte {
	for range 2 {
		deadline, _ := ctx.Deadline()
		pose, cancel := context.WithTimeout(ctx, min(poseTime, time.Until(deadline)/4))
		var shot struct {
			Data []byte `json:"data"`
		}
		err := t.call(pose, "Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
		cancel()
		if err == nil {
			return shot.Data
		}
	}
	return nil
}

// sourceScript takes two mebi of characters of the HTML, and half of that of the
// text.
const sourceScript = `[document.documentElement ? document.documentElement.outerHTML.slice(0, 2097152) : "", document.contentType, document.body ? document.body.innerText.slice(0, 1048576) : ""]`

// markdown returns the page as Markdown.
func (t *tab) markdown(ctx context.Context) string {
	var source []string
	if t.evaluate(ctx, sourceScript, &source) != nil || len(source) != 3 {
		return ""
	}
	if source[1] != "text/html" && source[1] != "application/xhtml+xml" && source[2] != "" {
		return source[2] // such as plain text, which the browser wraps in HTML
	}
	if md, err := toMarkdown(source[0]); err == nil {
		return md
	}
	return source[2]
}

const focusedScript = `(() => {
  let e = document.activeElement;
  for (;;) {
    const inner = e && (e.shadowRoot && e.shadowRoot.activeElement || e.contentDocument && e.contentDocument.activeElement);
    if (!inner || inner === inner.ownerDocument.body) break;
    e = inner;
  }
  return e === document.body || e === document.documentElement ? null : e;
})()`

// focused returns the bid of the element that has the focus; "" where none has.
func (t *tab) focused(ctx context.Context) string {
	r, err := t.expression(ctx, map[string]any{"expression": focusedScript, "objectGroup": "actions"})
	if err != nil || r.Result.ObjectID == "" {
		return ""
	}
	var described struct {
		Node struct {
			BackendNodeID int64 `json:"backendNodeId"`
		} `json:"node"`
	}
	if t.call(ctx, "DOM.describeNode", map[string]any{"objectId": r.Result.ObjectID}, &described) != nil {
		return ""
	}
	_ = t.call(ctx, "Runtime.releaseObjectGroup", map[string]any{"objectGroup": "actions"}, nil)
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.bid(described.Node.BackendNodeID)
}

// box is where an element is, in pixels from the upper left corner of what is
// visible.
type box struct{ x, y, w, h float64 }

func (b box) visible() bool {
	return b.w >= 1 && b.h >= 1 && b.x < width && b.y < height && b.x+b.w > 0 && b.y+b.h > 0
}

// sight is what the layout says of an element.
type sight struct {
	box
	clickable bool
}

// snapshot is the part of DOMSnapshot.captureSnapshot that is looked at.
type snapshot struct {
	Documents []struct {
		ScrollX float64 `json:"scrollOffsetX"`
		ScrollY float64 `json:"scrollOffsetY"`
		Nodes   struct {
			BackendNodeID []int64 `json:"backendNodeId"`
			IsClickable   struct {
				Index []int `json:"index"`
			} `json:"isClickable"`
			Content struct {
				Index []int `json:"index"`
				Value []int `json:"value"`
			} `json:"contentDocumentIndex"`
		} `json:"nodes"`
		Layout struct {
			NodeIndex []int       `json:"nodeIndex"`
			Bounds    [][]float64 `json:"bounds"`
		} `json:"layout"`
	} `json:"documents"`
}

// elements says of each node with a layout where it is; nil where the page is too
// large for that.
func (t *tab) elements(ctx context.Context) map[int64]sight {
	var s snapshot
	if t.call(ctx, "DOMSnapshot.captureSnapshot", map[string]any{"computedStyles": []string{}}, &s) != nil {
		return nil
	}
	all := map[int64]sight{}
	if len(s.Documents) > 0 {
		s.add(all, 0, 0, 0, 0)
	}
	return all
}

// add adds the nodes of one document and those in it. Its origin is where the
// frame begins.
func (s *snapshot) add(all map[int64]sight, document int, x, y float64, depth int) {
	d := s.Documents[document]
	frames := map[int]int{}
	for i, node := range d.Nodes.Content.Index {
		if i < len(d.Nodes.Content.Value) {
			frames[node] = d.Nodes.Content.Value[i]
		}
	}
	clickable := map[int]bool{}
	for _, node := range d.Nodes.IsClickable.Index {
		clickable[node] = true
	}
	for i, node := range d.Layout.NodeIndex {
		if i >= len(d.Layout.Bounds) || len(d.Layout.Bounds[i]) != 4 || node < 0 || node >= len(d.Nodes.BackendNodeID) {
			continue
		}
		at := d.Layout.Bounds[i]
		b := box{at[0] + x - d.ScrollX, at[1] + y - d.ScrollY, at[2], at[3]}
		all[d.Nodes.BackendNodeID[node]] = sight{b, clickable[node]}
		if inner, ok := frames[node]; ok && inner > 0 && inner < len(s.Documents) && depth < maxDepth {
			s.add(all, inner, b.x, b.y, depth+1)
		}
	}
}

// maxMarks bounds the marks of a screenshot; more of them hide each other.
const maxMarks = 500

// marks lists what can be clicked and seen, by bid.
func (t *tab) marks(elements map[int64]sight) map[string]box {
	marks := map[string]box{}
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	for node, e := range elements {
		if bid, known := t.bids[node]; known && e.clickable && e.visible() && len(marks) < maxMarks {
			marks[bid] = e.box
		}
	}
	return marks
}

// describe says by bid where elements are and whether they can be clicked.
func (t *tab) describe(elements map[int64]sight) map[string]any {
	all := map[string]any{}
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	for node, bid := range t.bids {
		e, seen := elements[node]
		if !seen {
			continue
		}
		visibility := 0
		if e.visible() {
			visibility = 1
		}
		all[bid] = map[string]any{
			"visibility": visibility, "bbox": []any{e.x, e.y, e.w, e.h}, "clickable": e.clickable, "set_of_marks": e.clickable && e.visible(),
		}
	}
	return all
}
