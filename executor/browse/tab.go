package browse

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/inspector"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	// A page with more than manyDocuments since the last goto navigates by
	// itself. navigate leaves it up to maxLeave times if it returns within
	// leaveTime.
	manyDocuments, maxLeave, leaveTime = 8, 10, 500 * time.Millisecond
	// loadGrace bounds the loading of the rest of a page after its text, and the wait for a download
	// that a click asks for.
	loadGrace = 10 * time.Second
	// quietScript waits until the page did not change for a tenth of a second,
	// at most half a second as in the reference.
	quietTime   = 5 * time.Second // bounds its answer
	quietScript = `new Promise(done => {
  let timer;
  const over = () => { watch.disconnect(); done(true); };
  const again = () => { clearTimeout(timer); timer = setTimeout(over, 100); };
  const watch = new MutationObserver(again);
  watch.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
  again();
  setTimeout(over, 500);
})`
	// maxNotes bounds the notes on the dialogs of one step.
	maxNotes = 20
	// maxLoaders bounds the documents that are remembered of a page that reloads
	// itself all the time.
	maxLoaders = 1000
)

// tab is one page. The mu of its browser guards the fields that change.
type tab struct {
	c        *chromium
	target   target.ID
	frame    cdp.FrameID // the main frame, which has the id of the target
	session  target.SessionID
	url      string
	ready    bool // setUp ran
	crashed  bool
	commits  int                   // documents that were shown
	loader   cdp.LoaderID          // of the last one
	loaders  map[cdp.LoaderID]bool // of all since the last goto
	loading  bool                  // part of the current document, or of the next one
	parsed   bool                  // the current document's DOMContentLoaded fired
	restless bool                  // it did not stop loading in this step
	notes    []string
	drag     *input.DragData // what the mouse drags, after setInterceptDrags

	// bids are the names that agents use for elements; nodes is the inverse map.
	// An element keeps its bid as long as its document is shown.
	bids  map[cdp.BackendNodeID]string
	nodes map[string]cdp.BackendNodeID
}

// setUp enables the events of the tab. The document before counts as loaded.
func (t *tab) setUp(ctx context.Context) error {
	if locked(t.c, func() bool { return t.ready }) {
		return nil
	}
	if err := tell(ctx, t, inspector.Enable, cdp.Empty{}); err != nil {
		return err
	}
	if err := tell(ctx, t, page.Enable, page.EnableParams{}); err != nil {
		return err
	}
	size := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1}
	if err := tell(ctx, t, emulation.SetDeviceMetricsOverride, size); err != nil {
		return err
	}
	if err := tell(ctx, t, page.BringToFront, cdp.Empty{}); err != nil {
		return err
	}
	t.c.mu.Lock()
	t.ready = true
	t.c.mu.Unlock()
	return nil
}

// handle handles an event of the tab; mu is held.
func (t *tab) handle(m message) {
	switch m.Method {
	case page.FrameStartedLoading.Method:
		t.loading = t.loading || payload(m, page.FrameStartedLoading).FrameID == t.frame
	case page.FrameStoppedLoading.Method:
		t.loading = t.loading && payload(m, page.FrameStoppedLoading).FrameID != t.frame
	case page.FrameNavigated.Method:
		if e := payload(m, page.FrameNavigated); e.Frame != nil && e.Frame.ParentID == "" {
			t.commits++
			t.loader = e.Frame.LoaderID
			if len(t.loaders) < maxLoaders {
				t.loaders[e.Frame.LoaderID] = true
			}
			t.parsed = false
			clear(t.bids)
			clear(t.nodes)
		}
	case page.NavigatedWithinDocument.Method:
		if payload(m, page.NavigatedWithinDocument).FrameID == t.frame {
			t.commits++
		}
	case page.DomContentEventFired.Method, page.LoadEventFired.Method:
		t.parsed = true
	case page.JavascriptDialogOpening.Method:
		t.answerDialog(payload(m, page.JavascriptDialogOpening))
	case input.DragIntercepted.Method:
		t.drag = payload(m, input.DragIntercepted).Data
	case inspector.TargetCrashed.Method:
		t.crashed = true
		t.c.drop(t.session, errCrashed)
	}
}

// answerDialog answers a dialog at once, because the page waits for the answer. It
// accepts that a page is left and dismisses other dialogs, as Playwright does.
func (t *tab) answerDialog(e page.EventJavascriptDialogOpening) {
	leave := e.Type == page.DialogTypeBeforeunload
	if !leave && len(t.notes) < maxNotes {
		t.notes = append(t.notes, fmt.Sprintf("The page showed a dialog (%s), which was dismissed: %s", clip(string(e.Type), 20), clip(repr(e.Message), 1000)))
	}
	_ = post(t.c.pipe, t.session, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: leave})
}

// call carries out a command in the tab. A tab that crashed answers no command.
func (t *tab) call(ctx context.Context, method string, params, result any) error {
	if locked(t.c, func() bool { return t.crashed }) {
		return errCrashed
	}
	return t.c.callIn(ctx, t.session, method, params, result)
}

// thrown returns the exception of a script as an error; nil if there was none.
func thrown(e *runtime.ExceptionDetails) error {
	if e == nil {
		return nil
	}
	text := e.Text + " "
	if e.Exception != nil {
		text += e.Exception.Description
	}
	return fail("Error", "%s", clip(text, 1000))
}

// valueOf returns the value of an object as JSON; nil if it has none.
func valueOf(r *runtime.RemoteObject) jsontext.Value {
	if r == nil {
		return nil
	}
	return r.Value
}

// world returns an execution context for our scripts. They see the document,
// but not the objects that the page's own scripts replaced.
func (t *tab) world(ctx context.Context) (runtime.ExecutionContextID, error) {
	// Universal access is for the frames of other sites.
	params := page.CreateIsolatedWorldParams{FrameID: t.frame, WorldName: "actiond", GrantUniveralAccess: new(true)}
	made, err := ask(ctx, t, page.CreateIsolatedWorld, params)
	return made.ExecutionContextID, err
}

// maxNavigations bounds the attempts to evaluate an expression in a page that
// navigates.
const maxNavigations = 100

// expression evaluates an expression of this package. It tries again if the page navigates
// meanwhile.
func (t *tab) expression(ctx context.Context, params runtime.EvaluateParams) (r runtime.EvaluateResult, err error) {
	for range maxNavigations {
		if params.ContextID, err = t.world(ctx); err == nil {
			r, err = ask(ctx, t, runtime.Evaluate, params)
		}
		if err == nil || !errors.As(err, new(*refusal)) {
			break
		}
	}
	return r, err
}

// evaluate evaluates an expression of this package and decodes its value.
func (t *tab) evaluate(ctx context.Context, expression string, value any) error {
	r, err := t.expression(ctx, runtime.EvaluateParams{Expression: expression, ReturnByValue: new(true), AwaitPromise: new(true)})
	if err == nil {
		err = thrown(r.ExceptionDetails)
	}
	if err != nil || value == nil {
		return err
	}
	return json.Unmarshal(valueOf(r.Result), value, tolerant)
}

// bid returns the bid of a node; mu is held.
func (t *tab) bid(node cdp.BackendNodeID) string {
	if t.bids[node] == "" {
		t.c.lastBID++
		name := strconv.Itoa(t.c.lastBID)
		t.bids[node], t.nodes[name] = name, node
	}
	return t.bids[node]
}

// element is the node of a bid.
type element struct {
	*tab
	bid    string
	node   cdp.BackendNodeID
	object runtime.RemoteObjectID
}

func (t *tab) element(ctx context.Context, bid string) (element, error) {
	missing := fail("ValueError", "there is no element with the bid %q on this page: use one of its accessibility tree",
		clip(bid, 40))
	t.c.mu.Lock()
	node, known := t.nodes[bid]
	t.c.mu.Unlock()
	if !known {
		return element{}, missing
	}
	world, err := t.world(ctx)
	var resolved dom.ResolveNodeResult
	if err == nil {
		resolved, err = ask(ctx, t, dom.ResolveNode,
			dom.ResolveNodeParams{BackendNodeID: node, ObjectGroup: "actions", ExecutionContextID: world})
	}
	if errors.As(err, new(*refusal)) || err == nil && resolved.Object == nil {
		return element{}, missing
	}
	if err != nil {
		return element{}, err
	}
	return element{t, bid, node, resolved.Object.ObjectID}, nil
}

// run runs a function of this package on the element. The function returns an error as a
// text; null means success.
func (e element) run(ctx context.Context, function string, args ...any) error {
	_, err := e.test(ctx, function, args...)
	return err
}

// test is run for a function that may also return true or false.
func (e element) test(ctx context.Context, function string, args ...any) (yes bool, err error) {
	params := runtime.CallFunctionOnParams{FunctionDeclaration: function, ObjectID: e.object, ReturnByValue: new(true), UserGesture: new(true)}
	for _, a := range args {
		value, err := json.Marshal(a, tolerant)
		if err != nil {
			return false, err
		}
		params.Arguments = append(params.Arguments, &runtime.CallArgument{Value: value})
	}
	r, err := ask(ctx, e.tab, runtime.CallFunctionOn, params)
	if err == nil {
		err = thrown(r.ExceptionDetails)
	}
	if err != nil {
		return false, err
	}
	var problem *string
	if value := valueOf(r.Result); json.Unmarshal(value, &problem, tolerant) != nil {
		return json.Unmarshal(value, &yes) == nil && yes, nil
	}
	if problem != nil {
		return false, e.fail(clip(*problem, 1000))
	}
	return false, nil
}

func (e element) fail(problem string) error {
	return fail("Error", "the element [%s] %s", e.bid, problem)
}

// awaitLoad waits until the document that shown reports has its text, and up to
// loadGrace for the rest. It calls shown with mu held.
func (t *tab) awaitLoad(ctx context.Context, shown func() bool) error {
	t.c.mu.Lock()
	t.restless = false
	t.c.mu.Unlock()
	if err := t.c.await(ctx, func() bool { return t.crashed || shown() && t.parsed }); err != nil {
		return err
	}
	return t.awaitRest(ctx)
}

// awaitRest waits until the page has loaded, up to loadGrace.
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

// settle waits for the visible effects of the calls.
func (t *tab) settle(ctx context.Context) error {
	if err := t.awaitRest(ctx); err != nil {
		return err
	}
	quiet, cancel := context.WithTimeout(ctx, quietTime)
	defer cancel()
	err := t.evaluate(quiet, quietScript, nil)
	if errors.As(err, new(*refusal)) { // the page navigated meanwhile
		return t.awaitRest(ctx)
	}
	if quiet.Err() != nil && ctx.Err() == nil {
		return nil // the observation reports the error
	}
	return err
}
