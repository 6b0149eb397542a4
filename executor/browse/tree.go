package browse

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const (
	maxNodes  = 50_000 // of a page and its frames
	maxName   = 2000   // bytes of a name or a value that are shown
	maxFrames = 100    // of a page
	maxBIDs   = 100_000
)

// accessible is a node of an accessibility tree.
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
	Node int64 `json:"backendDOMNodeId"`
}

type property struct {
	Value any `json:"value"`
}

func (p property) text() string {
	s, _ := p.Value.(string)
	return s
}

// short is the value, if it is a long text its beginning.
func (p property) short() any {
	if s, ok := p.Value.(string); ok {
		return clip(s, maxName)
	}
	return p.Value
}

// tree is the accessibility tree of a page and its frames.
type tree struct {
	tab       *tab
	elements  map[int64]sight
	main      string
	frames    map[string]*document // by their ids
	order     []string             // of the ids, that of the page first
	inside    map[int64]string     // the id of the frame in a node
	count     int                  // of nodes
	truncated bool
}

// document is the tree of one document.
type document struct {
	root  string
	byID  map[string]*accessible
	nodes []*accessible
}

// tree asks for the tree. What is missing of it is marked as cut.
func (t *tab) tree(ctx context.Context, elements map[int64]sight) *tree {
	tree := &tree{tab: t, elements: elements, main: t.target, frames: map[string]*document{}, inside: map[int64]string{}}
	tree.ask(ctx, t.target)
	var r struct {
		FrameTree frameTree `json:"frameTree"`
	}
	if t.call(ctx, "Page.getFrameTree", nil, &r) != nil {
		return tree
	}
	for _, id := range r.FrameTree.ids(nil) {
		if id == t.target {
			continue
		}
		var owner struct {
			Node int64 `json:"backendNodeId"`
		}
		if t.call(ctx, "DOM.getFrameOwner", map[string]any{"frameId": id}, &owner) == nil {
			tree.inside[owner.Node] = id
			tree.ask(ctx, id)
		}
	}
	return tree
}

type frameTree struct {
	Frame struct {
		ID string `json:"id"`
	} `json:"frame"`
	Children []frameTree `json:"childFrames"`
}

func (f frameTree) ids(found []string) []string {
	found = append(found, f.Frame.ID)
	for _, child := range f.Children {
		if len(found) < maxFrames {
			found = child.ids(found)
		}
	}
	return found
}

// ask asks for the tree of one frame.
func (t *tree) ask(ctx context.Context, id string) {
	var a answer
	if t.tab.call(ctx, "Accessibility.getFullAXTree", map[string]any{"frameId": id}, &a) != nil {
		return
	}
	f, whole := decodeFrame(a.Result, maxNodes-t.count)
	t.frames[id] = f
	t.count += len(f.nodes)
	t.order = append(t.order, id)
	t.truncated = t.truncated || !whole
}

// decodeFrame reads so many nodes, as far as there are: an answer may have been cut.
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

// cut stands where a tree was too large.
const cut = "[The page is too large: this is the first part of its accessibility tree]"

// lines writes the tree, at most about limit bytes of it.
func (t *tree) lines(limit int) string {
	var out strings.Builder
	t.tab.c.mu.Lock()
	if f := t.frames[t.main]; f != nil {
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

// forget takes the names of nodes that are no longer there: a document may live
// for ever and change all the time. mu is held.
func (t *tree) forget() {
	there := map[int64]bool{}
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

// place is where in the tree a node is.
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

// unnamed are the roles that are of no interest; the text in them is.
var unnamed = []string{"none", "InlineTextBox", "LineBreak", "ListMarker"}

// bare are the properties that stand without a value, hidden those that agents
// have no use for (BrowserGym's choice).
var (
	bare   = []string{"required", "focused", "atomic"}
	hidden = []string{"editable", "readonly", "level", "settable", "multiline", "invalid", "focusable", "actions"}
)

// line writes a node, unless it says nothing that the line above does not.
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

// python writes a value of JSON as Python does.
func python(v any) string {
	switch v := v.(type) {
	case string:
		return repr(clip(v, maxName))
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	}
	return fmt.Sprint(v)
}

// data returns the nodes of the page, its root first, and then those of its
// frames, in the form of the protocol, with the bids of elements: clients make
// their own lines of them.
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

func (t *tree) node(frame string, n *accessible) map[string]any {
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

// nodeID makes one space of the ids of all frames.
func (t *tree) nodeID(frame, id string) string {
	if frame == t.main {
		return id
	}
	return frame + "." + id
}

func valued(v any) map[string]any { return map[string]any{"value": v} }
