package browse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/domsnapshot"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"

	"github.com/actiond/actiond/internal/shorten"
)

const (
	// maxText bounds the text of a page, in bytes.
	maxText = 1 << 20
	// aliveTime bounds the simplest answer of a page.
	aliveTime = 20 * time.Second
	// poseTime bounds a screenshot.
	poseTime = 5 * time.Second
)

// maxElements is the most elements of a page with a tree: Chromium needs
// seconds for the tree of 20,000.
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

// excerpt replaces the tree of a page that is too large for one.
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
	// errBlind says that the page does not answer.
	errBlind = errors.New("the page does not answer")
	// errUnseen says that the page answers, but changes too fast to be
	// observed.
	errUnseen = fail("TimeoutError", "the page could not be looked at in the time of this step")
)

// see observes the page. The error says why that is impossible; a part that is
// not available is empty otherwise.
func (c *chromium) see(ctx context.Context, t *tab, s Step, page *Page) error {
	alive, cancel := context.WithTimeoutCause(ctx, aliveTime, errBlind)
	defer cancel()
	if err := tell(alive, t, cdppage.BringToFront, cdp.Empty{}); err != nil {
		return err
	}
	var count int
	switch err := t.evaluate(alive, countScript, &count); {
	case errors.As(err, new(*refusal)):
		return errUnseen // it navigated each time
	case err != nil:
		return err
	}
	page.Screenshot = t.screenshot(ctx)
	page.Focused = t.focused(ctx)
	if s.Text {
		page.Text = shorten.Middle(t.markdown(ctx), maxText/2, maxText/2, shortened)
	}
	var elements map[cdp.BackendNodeID]sight
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

// screenshot returns an image of the visible part, nil if none comes in
// time. If the page navigates at this moment, Chromium does not answer, but a
// second attempt succeeds.
func (t *tab) screenshot(ctx context.Context) []byte {
	for range 2 {
		deadline, _ := ctx.Deadline()
		pose, cancel := context.WithTimeout(ctx, min(poseTime, time.Until(deadline)/4))
		shot, err := ask(pose, t, cdppage.CaptureScreenshot, cdppage.CaptureScreenshotParams{})
		cancel()
		if err == nil {
			return shot.Data
		}
	}
	return nil
}

// sourceScript returns up to two Mi characters of the HTML and one of the text.
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

// focused returns the bid of the element with the focus; "" if no element has it.
func (t *tab) focused(ctx context.Context) string {
	r, err := t.expression(ctx, runtime.EvaluateParams{Expression: focusedScript, ObjectGroup: "actions"})
	if err != nil || r.Result == nil || r.Result.ObjectID == "" {
		return ""
	}
	described, err := ask(ctx, t, describeNode, dom.DescribeNodeParams{ObjectID: r.Result.ObjectID})
	if err != nil {
		return ""
	}
	_ = tell(ctx, t, runtime.ReleaseObjectGroup, runtime.ReleaseObjectGroupParams{ObjectGroup: "actions"})
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.bid(described.Node.BackendNodeID)
}

// box is the place of an element, in pixels from the upper left corner of the
// visible part.
type box struct{ x, y, w, h float64 }

func (b box) visible() bool {
	return b.w >= 1 && b.h >= 1 && b.x < width && b.y < height && b.x+b.w > 0 && b.y+b.h > 0
}

// sight is the layout of an element.
type sight struct {
	box
	clickable bool
}

// The results of describeNode and captureSnapshot are the parts that are read: all of
// dom.DescribeNodeResult and domsnapshot.CaptureSnapshotResult would take several
// times the memory of the message, whose size a page decides.
var (
	describeNode    = cdp.Command[dom.DescribeNodeParams, description]{Method: dom.CommandDescribeNode}
	captureSnapshot = cdp.Command[domsnapshot.CaptureSnapshotParams, snapshot]{Method: domsnapshot.CommandCaptureSnapshot}
)

type description struct {
	Node struct {
		BackendNodeID cdp.BackendNodeID `json:"backendNodeId"`
	} `json:"node"`
}

type snapshot struct {
	Documents []struct {
		ScrollX float64 `json:"scrollOffsetX"`
		ScrollY float64 `json:"scrollOffsetY"`
		Nodes   struct {
			BackendNodeID []cdp.BackendNodeID `json:"backendNodeId"`
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

// elements returns the layout of nodes; nil if the page is too large.
func (t *tab) elements(ctx context.Context) map[cdp.BackendNodeID]sight {
	s, err := ask(ctx, t, captureSnapshot, domsnapshot.CaptureSnapshotParams{})
	if err != nil {
		return nil
	}
	all := map[cdp.BackendNodeID]sight{}
	if len(s.Documents) > 0 {
		s.add(all, 0, 0, 0, 0)
	}
	return all
}

// add adds the nodes of a document and of those in it. x and y are the
// document's origin.
func (s *snapshot) add(all map[cdp.BackendNodeID]sight, document int, x, y float64, depth int) {
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

// maxMarks bounds the marks of a screenshot, because more would hide each
// other.
const maxMarks = 500

// marks returns the visible clickable elements, by bid.
func (t *tab) marks(elements map[cdp.BackendNodeID]sight) map[string]box {
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

// describe returns the layout of elements as data, by bid.
func (t *tab) describe(elements map[cdp.BackendNodeID]sight) map[string]any {
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
