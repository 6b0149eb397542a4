package browse

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/page"
)

const (
	maxNodes  = 50_000 // of a page and its frames
	maxName   = 2000   // bytes of a name or a value that are shown
	maxFrames = 100    // of a page
	maxBIDs   = 100_000
)

// accessible is the part of accessibility.Node that is read.
type accessible struct {
	NodeID     string   `json:"nodeId"`
	ParentID   string   `json:"parentId"`
	ChildIDs   []string `json:"childIds"`
	Ignored    bool     `json:"ignored"`
	Role       property `json:"role"`
	Name       property `json:"name"`
	Value      property `json:"value"`
	Properties []struct {
		Name  string   `json:"name"`
		Value property `json:"value"`
	} `json:"properties"`
	Node cdp.BackendNodeID `json:"backendDOMNodeId"`
}

type property struct {
	Value any `json:"value"`
}

func (p property) text() string {
	s, _ := p.Value.(string)
	return s
}

// short returns the value; of a long text the beginning.
func (p property) short() any {
	if s, ok := p.Value.(string); ok {
		return clip(s, maxName)
	}
	return p.Value
}

// tree is the accessibility tree of a page and its frames.
type tree struct {
	tab       *tab
	elements  map[cdp.BackendNodeID]sight
	frames    map[cdp.FrameID]*document
	order     []cdp.FrameID                     // the main frame first
	inside    map[cdp.BackendNodeID]cdp.FrameID // the frame in a node
	count     int                               // of nodes
	truncated bool
}

// document is the tree of one document.
type document struct {
	root  string
	byID  map[string]*accessible
	nodes []*accessible
}

// tree gets the tree. It marks missing parts.
func (t *tab) tree(ctx context.Context, elements map[cdp.BackendNodeID]sight) *tree {
	tree := &tree{tab: t, elements: elements, frames: map[cdp.FrameID]*document{}, inside: map[cdp.BackendNodeID]cdp.FrameID{}}
	tree.add(ctx, t.frame)
	r, err := ask(ctx, t, page.GetFrameTree, cdp.Empty{})
	if err != nil {
		return tree
	}
	for _, id := range frames(r.FrameTree, nil) {
		if id == t.frame {
			continue
		}
		if owner, err := ask(ctx, t, dom.GetFrameOwner, dom.GetFrameOwnerParams{FrameID: id}); err == nil {
			tree.inside[owner.BackendNodeID] = id
			tree.add(ctx, id)
		}
	}
	return tree
}

// frames appends the ids of a frame and the frames in it, at most maxFrames.
func frames(f *page.FrameTree, found []cdp.FrameID) []cdp.FrameID {
	if f == nil || f.Frame == nil || len(found) >= maxFrames {
		return found
	}
	found = append(found, f.Frame.ID)
	for _, child := range f.ChildFrames {
		found = frames(child, found)
	}
	return found
}

// add adds the tree of one frame.
func (t *tree) add(ctx context.Context, id cdp.FrameID) {
	var a answer
	if t.tab.call(ctx, accessibility.CommandGetFullAXTree, accessibility.GetFullAXTreeParams{FrameID: id}, &a) != nil {
		return
	}
	f, whole := decodeFrame(a.Result, maxNodes-t.count)
	t.frames[id] = f
	t.count += len(f.nodes)
	t.order = append(t.order, id)
	t.truncated = t.truncated || !whole
}

// decodeFrame decodes up to limit nodes. The answer may be truncated.
func decodeFrame(data []byte, limit int) (f *document, whole bool) {
	f = &document{byID: map[string]*accessible{}}
	d := json.NewDecoder(bytes.NewReader(data))
	for _, want := range []json.Token{json.Delim('{'), "nodes", json.Delim('[')} {
		if token, err := d.Token(); err != nil || token != want {
			return f, false
		}
	}
	for d.More() {
		n := &accessible{}
		if len(f.nodes) >= limit || d.Decode(n) != nil {
			return f, false
		}
		if f.root == "" && n.ParentID == "" {
			f.root = n.NodeID
		}
		f.byID[n.NodeID] = n
		f.nodes = append(f.nodes, n)
	}
	return f, true
}

// cut follows a truncated tree.
const cut = "[The page is too large: this is the first part of its accessibility tree]"

// lines writes the tree, at most about limit bytes of it.
func (t *tree) lines(limit int) string {
	var out strings.Builder
	t.tab.c.mu.Lock()
	if f := t.frames[t.tab.frame]; f != nil {
		t.write(&out, limit, f, f.root, place{})
	}
	if len(t.tab.bids) > maxBIDs {
		t.forget()
	}
	t.tab.c.mu.Unlock()
	if t.truncated || out.Len() >= limit {
		out.WriteString(cut + "\n")
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// forget removes the bids of nodes that no longer exist, because a document may
// change for days; mu is held.
func (t *tree) forget() {
	there := map[cdp.BackendNodeID]bool{}
	for _, f := range t.frames {
		for _, n := range f.nodes {
			there[n.Node] = true
		}
	}
	for node, bid := range t.tab.bids {
		if !there[node] {
			delete(t.tab.bids, node)
			delete(t.tab.nodes, bid)
		}
	}
}

// place is the place of a node in the tree.
type place struct {
	indent int    // of the line
	depth  int    // in the tree, with the nodes that have no line
	parent string // the name on the line above
}

// maxLevel bounds the depth of a tree.
const maxLevel = 1000

func (t *tree) write(out *strings.Builder, limit int, f *document, id string, at place) {
	n := f.byID[id]
	if n == nil || out.Len() >= limit || at.depth > maxLevel {
		return
	}
	line, shown := t.line(n, at.parent)
	if shown {
		out.WriteString(strings.Repeat("\t", at.indent))
		out.WriteString(line)
		out.WriteByte('\n')
		at.indent++
		at.parent = n.Name.text()
	}
	at.depth++
	for _, child := range n.ChildIDs {
		t.write(out, limit, f, child, at)
	}
	if inner := t.frames[t.inside[n.Node]]; inner != nil && n.Node != 0 {
		t.write(out, limit, inner, inner.root, at)
	}
}

// unnamed are roles that are not shown; their text is.
var unnamed = []string{"none", "InlineTextBox", "LineBreak", "ListMarker"}

// bare are properties shown without a value, hidden those not shown, both as in
// BrowserGym.
var (
	bare   = []string{"required", "focused", "atomic"}
	hidden = []string{"editable", "readonly", "level", "settable", "multiline", "invalid", "focusable", "actions"}
)

// line returns the line of a node. shown is false if it would repeat the line
// above.
func (t *tree) line(n *accessible, parent string) (line string, shown bool) {
	role, name := n.Role.text(), strings.TrimSpace(n.Name.text())
	if n.Ignored || role == "" || slices.Contains(unnamed, role) {
		return "", false
	}
	isText := role == "StaticText"
	if isText {
		return role + " " + repr(clip(name, maxName)), name != "" && !strings.Contains(parent, name)
	}
	attributes := t.attributes(n)
	if role == "generic" && name == "" && attributes == "" {
		return "", false
	}
	if n.Node != 0 && role != "RootWebArea" {
		line = "[" + t.tab.bid(n.Node) + "] "
	}
	line += role
	if name != "" || role != "generic" {
		line += " " + repr(clip(name, maxName))
	}
	if n.Value.Value != nil && n.Value.Value != "" {
		line += " value=" + python(n.Value.Value)
	}
	return line + attributes, true
}

func (t *tree) attributes(n *accessible) string {
	var out strings.Builder
	if t.elements[n.Node].clickable {
		out.WriteString(", clickable")
	}
	for _, p := range n.Properties {
		switch {
		case p.Value.Value == nil || slices.Contains(hidden, p.Name):
		case !slices.Contains(bare, p.Name):
			out.WriteString(", " + p.Name + "=" + python(p.Value.Value))
		case p.Value.Value == true:
			out.WriteString(", " + p.Name)
		}
	}
	return out.String()
}

// python formats a JSON value as Python does.
func python(v any) string {
	switch v := v.(type) {
	case string:
		return repr(clip(v, maxName))
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	}
	return fmt.Sprint(v)
}

// data returns the nodes of the page, the root first, and then those of its
// frames, in the form of the protocol with the bids of elements. Clients format
// them themselves.
func (t *tree) data() []any {
	t.tab.c.mu.Lock()
	defer t.tab.c.mu.Unlock()
	var all []any
	for _, id := range t.order {
		for _, n := range t.frames[id].nodes {
			all = append(all, t.node(id, n))
		}
	}
	return all
}

func (t *tree) node(frame cdp.FrameID, n *accessible) map[string]any {
	children := make([]any, 0, len(n.ChildIDs))
	for _, child := range n.ChildIDs {
		children = append(children, t.nodeID(frame, child))
	}
	if inner := t.frames[t.inside[n.Node]]; inner != nil && n.Node != 0 {
		children = append(children, t.nodeID(t.inside[n.Node], inner.root))
	}
	node := map[string]any{
		"nodeId": t.nodeID(frame, n.NodeID), "ignored": n.Ignored, "role": valued(n.Role.text()), "childIds": children,
	}
	if n.Name.Value != nil {
		node["name"] = valued(clip(n.Name.text(), maxName))
	}
	if n.Value.Value != nil {
		node["value"] = valued(n.Value.short())
	}
	if len(n.Properties) > 0 {
		properties := make([]any, 0, len(n.Properties))
		for _, p := range n.Properties {
			if p.Value.Value != nil {
				properties = append(properties, map[string]any{"name": p.Name, "value": valued(p.Value.short())})
			}
		}
		node["properties"] = properties
	}
	if bid := t.tab.bids[n.Node]; bid != "" {
		node["browsergym_id"] = bid
	}
	return node
}

// nodeID makes ids unique across frames.
func (t *tree) nodeID(frame cdp.FrameID, id string) string {
	if frame == t.tab.frame {
		return id
	}
	return string(frame) + "." + id
}

func valued(v any) map[string]any { return map[string]any{"value": v} }
