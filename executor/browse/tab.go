package browse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
)

const (
	// loadGrace is how long a page whose text is there may take for the rest.
	loadGrace = 10 * time.Second
	// quietScript waits until nothing in the page has changed for a tenth of a
	// second, and at most for half a second, which is what the reference waits.
	quietTime   = 5 * time.Second // for its answer
	quietScript = `new Promise(done => {
  let timer;
  const over = () => { watch.disconnect(); done(true); };
  const again = () => { clearTimeout(timer); timer = setTimeout(over, 100); };
  const watch = new MutationObserver(again);
  watch.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  again();
  setTimeout(over, 500);
})`
	// maxNotes bounds what is told of the dialogs of one step.
	maxNotes = 20
)

// tab is one page. mu of its browser guards all that changes.
type tab struct {
	c               *chromium
	target, session string
	url             string
	ready           bool // setUp ran
	crashed         bool
	commits         int  // documents that were shown
	loading         bool // something of the current document, or of the next one
	parsed, loaded  bool // the current document's DOMContentLoaded and load
	notes           []string
	drag            json.RawMessage // what the mouse drags, after it was asked for

	// bids are what agents call elements; nodes are the same the other way round.
	// An element keeps its bid while its document is shown.
	bids  map[int64]string
	nodes map[string]int64
}

func newTab(c *chromium, target, session, url string) *tab {
	return &tab{c: c, target: target, session: session, url: url, parsed: true, loaded: true, bids: map[int64]string{}, nodes: map[string]int64{}}
}

// setUp has the tab report what happens in it. What was shown before is loaded.
func (t *tab) setUp(ctx context.Context) error {
	t.c.mu.Lock()
	ready := t.ready
	t.c.mu.Unlock()
	if ready {
		return nil
	}
	for _, command := range []struct {
		method string
		params map[string]any
	}{
		{"Inspector.enable", nil},
		{"Page.enable", nil},
		{"Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}},
		{"Page.bringToFront", nil},
	} {
		if err := t.call(ctx, command.method, command.params, nil); err != nil {
			return err
		}
	}
	t.c.mu.Lock()
	t.ready = true
	t.c.mu.Unlock()
	return nil
}

// handle takes an event of the tab; mu is held.
func (t *tab) handle(method string, e event) {
	main := e.FrameID == t.target
	switch method {
	case "Page.frameStartedLoading":
		t.loading = t.loading || main
	case "Page.frameStoppedLoading":
		t.loading = t.loading && !main
	case "Page.frameNavigated":
		if e.Frame.ParentID == "" {
			t.commits++
			t.parsed, t.loaded = false, false
			clear(t.bids)
			clear(t.nodes)
		}
	case "Page.navigatedWithinDocument":
		if main {
			t.commits++
		}
	case "Page.domContentEventFired":
		t.parsed = true
	case "Page.loadEventFired":
		t.parsed, t.loaded = true, true
	case "Page.javascriptDialogOpening":
		t.answerDialog(e)
	case "Input.dragIntercepted":
		t.drag = e.Data
	case "Inspector.targetCrashed":
		t.crashed = true
		t.c.drop(t.session, errCrashed)
	}
}

// answerDialog answers a dialog at once, since nothing else goes on before it is:
// a page may be left, and any other question is declined, as Playwright does.
func (t *tab) answerDialog(e event) {
	leave := e.Type == "beforeunload"
	if !leave && len(t.notes) < maxNotes {
		t.notes = append(t.notes, fmt.Sprintf("The page showed a dialog (%s), which was dismissed: %s", clip(e.Type, 20), clip(repr(e.Message), 1000)))
	}
	_, _, _ = t.c.send(t.session, "Page.handleJavaScriptDialog", map[string]any{"accept": leave})
}

// call carries out a command in the tab. One that crashed answers nothing.
func (t *tab) call(ctx context.Context, method string, params map[string]any, result any) error {
	t.c.mu.Lock()
	crashed := t.crashed
	t.c.mu.Unlock()
	if crashed {
		return errCrashed
	}
	return t.c.call(ctx, t.session, method, params, result)
}

// remote is a value in the page.
type remote struct {
	Result struct {
		Value    json.RawMessage `json:"value"`
		ObjectID string          `json:"objectId"`
	} `json:"result"`
	Exception *struct {
		Text      string `json:"text"`
		Exception struct {
			Description string `json:"description"`
		} `json:"exception"`
	} `json:"exceptionDetails"`
}

func (r *remote) err() error {
	if r.Exception == nil {
		return nil
	}
	return fail("Error", "%s", clip(r.Exception.Text+" "+r.Exception.Exception.Description, 1000))
}

// evaluate evaluates an expression of ours and decodes its value.
func (t *tab) evaluate(ctx context.Context, expression string, value any) error {
	var r remote
	if err := t.call(ctx, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &r); err != nil {
		return err
	}
	if err := r.err(); err != nil || value == nil {
		return err
	}
	return json.Unmarshal(r.Result.Value, value)
}

// bid names a node; mu is held.
func (t *tab) bid(node int64) string {
	if t.bids[node] == "" {
		t.c.lastBID++
		name := strconv.Itoa(t.c.lastBID)
		t.bids[node], t.nodes[name] = name, node
	}
	return t.bids[node]
}

// element is a node that a call names.
type element struct {
	*tab
	bid    string
	node   int64
	object string
}

func (t *tab) element(ctx context.Context, bid string) (element, error) {
	missing := fail("ValueError", "there is no element with the bid %q on this page: take one of its accessibility tree", clip(bid, 40))
	t.c.mu.Lock()
	node, known := t.nodes[bid]
	t.c.mu.Unlock()
	if !known {
		return element{}, missing
	}
	var resolved struct {
		Object struct {
			ObjectID string `json:"objectId"`
		} `json:"object"`
	}
	err := t.call(ctx, "DOM.resolveNode", map[string]any{"backendNodeId": node, "objectGroup": "actions"}, &resolved)
	if errors.As(err, new(*refusal)) {
		return element{}, missing
	}
	return element{t, bid, node, resolved.Object.ObjectID}, err
}

// run runs a function of ours on the element. A text that it returns says what
// is wrong; null is good.
func (e element) run(ctx context.Context, function string, args ...any) error {
	values := []map[string]any{}
	for _, a := range args {
		values = append(values, map[string]any{"value": a})
	}
	var r remote
	err := e.call(ctx, "Runtime.callFunctionOn", map[string]any{
		"functionDeclaration": function, "objectId": e.object, "arguments": values, "returnByValue": true, "userGesture": true,
	}, &r)
	if err != nil {
		return err
	}
	if err := r.err(); err != nil {
		return err
	}
	var problem *string
	if json.Unmarshal(r.Result.Value, &problem) == nil && problem != nil {
		return e.fail(clip(*problem, 1000))
	}
	return nil
}

func (e element) fail(problem string) error {
	return fail("Error", "the element [%s] %s", e.bid, problem)
}

// awaitLoad waits until a document after so many commits is there: its text, and
// within some time the rest.
func (t *tab) awaitLoad(ctx context.Context, commits int) error {
	if err := t.c.await(ctx, func() bool { return t.crashed || t.commits > commits && t.parsed }); err != nil {
		return err
	}
	return t.awaitRest(ctx)
}

// awaitRest waits for what a page still loads, as long as that is worth it.
func (t *tab) awaitRest(ctx context.Context) error {
	grace, cancel := context.WithTimeout(ctx, loadGrace)
	defer cancel()
	err := t.c.await(grace, func() bool { return t.crashed || t.parsed && !t.loading })
	switch {
	case errors.Is(err, errEnded), ctx.Err() != nil:
		return err
	case t.isCrashed():
		return errCrashed
	}
	return nil
}

func (t *tab) isCrashed() bool {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	return t.crashed
}

// settle waits until what the calls began is over, as far as it can be seen.
func (t *tab) settle(ctx context.Context) error {
	if err := t.awaitRest(ctx); err != nil {
		return err
	}
	quiet, cancel := context.WithTimeout(ctx, quietTime)
	defer cancel()
	err := t.evaluate(quiet, quietScript, nil)
	if errors.As(err, new(*refusal)) { // the document went away meanwhile
		return t.awaitRest(ctx)
	}
	if quiet.Err() != nil && ctx.Err() == nil {
		return nil // the observation will tell
	}
	return err
}
