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
	// A page that showed manyDocuments since the last goto goes on by itself. It is
	// left maxLeave times if it comes back within leaveTime.
	manyDocuments, maxLeave, leaveTime = 8, 10, 500 * time.Millisecond
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
	// maxLoaders is how many documents of a page that is left all the time are
	// told from the one that was asked for.
	maxLoaders = 1000
)

// tab is one page. mu of its browser guards all that changes.
type tab struct {
	c               *chromium
	target, session string
	url             string
	ready           bool // setUp ran
	crashed         bool
	commits         int             // documents that were shown
	loader          string          // of the last one
	loaders         map[string]bool // of all since the last goto
	loading         bool            // something of the current document, or of the next one
	parsed, loaded  bool            // the current document's DOMContentLoaded and load
	restless        bool            // it did not come to rest in this step
	notes           []string
	drag            json.RawMessage // what the mouse drags, after it was asked for

	// bids are what agents call elements; nodes are the same the other way round.
	// An element keeps its bid while its document is shown.
	bids  map[int64]string
	nodes map[string]int64
}

func newTab(c *chromium, target, session, url string) *tab {
	return &tab{c: c, target: target, session: session, url: url, parsed: true, loaded: true, loaders: map[string]bool{}, bids: map[int64]string{}, nodes: map[string]int64{}}
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
			t.loader = e.Frame.LoaderID
			if len(t.loaders) < maxLoaders {
				t.loaders[e.Frame.LoaderID] = true
			}
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

// world returns a context for scripts of ours. They see the document, and nothing
// that the page's own scripts have put in the place of what a browser has.
func (t *tab) world(ctx context.Context) (id int64, err error) {
	var made struct {
		ID int64 `json:"executionContextId"`
	}
	// The protocol spells it so. It is for the frames of other sites.
	err = t.call(ctx, "Page.createIsolatedWorld", map[string]any{"frameId": t.target, "worldName": "actiond", "grantUniveralAccess": true}, &made)
	return made.ID, err
}

// maxTries is how often a page may be left while it is asked something.
const maxTries = 100

// expression evaluates an expression of ours, again where the document went away
// meanwhile.
func (t *tab) expression(ctx context.Context, params map[string]any) (r remote, err error) {
	for range maxTries {
		if params["contextId"], err = t.world(ctx); err == nil {
			err = t.call(ctx, "Runtime.evaluate", params, &r)
		}
		if err == nil || !errors.As(err, new(*refusal)) {
			break
		}
	}
	return r, err
}

// evaluate evaluates an expression of ours and decodes its value.
func (t *tab) evaluate(ctx context.Context, expression string, value any) error {
	r, err := t.expression(ctx, map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true})
	if err == nil {
		err = r.err()
	}
	if err != nil || value == nil {
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
	world, err := t.world(ctx)
	if err == nil {
		err = t.call(ctx, "DOM.resolveNode", map[string]any{"backendNodeId": node, "objectGroup": "actions", "executionContextId": world}, &resolved)
	}
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

// awaitLoad waits until the document that is wanted is shown: its text, and within
// some time the rest. mu is held when shown is called.
func (t *tab) awaitLoad(ctx context.Context, shown func() bool) error {
	t.setRestless(false)
	if err := t.c.await(ctx, func() bool { return t.crashed || shown() && t.parsed }); err != nil {
		return err
	}
	return t.awaitRest(ctx)
}

// awaitRest waits for what a page still loads, as long as that is worth it.
func (t *tab) awaitRest(ctx context.Context) error {
	grace, cancel := context.WithTimeout(ctx, loadGrace)
	defer cancel()
	err := t.c.await(grace, func() bool { return t.crashed || t.restless || t.parsed && !t.loading })
	if errors.Is(err, errEnded) || ctx.Err() != nil {
		return err
	}
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	if t.crashed {
		return errCrashed
	}
	t.restless = t.restless || err != nil
	return nil
}

func (t *tab) setRestless(restless bool) {
	t.c.mu.Lock()
	defer t.c.mu.Unlock()
	t.restless = restless
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
