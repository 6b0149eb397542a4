package executor_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/executor/llm"
	"github.com/actiond/actiond/internal/testhelp"
)

func act(t *testing.T, e *executor.Executor, a api.Action) api.Observation {
	t.Helper()
	o, err := e.Do(t.Context(), api.Request{Action: a})
	if err != nil {
		t.Fatalf("%+v: %v", a, err)
	}
	return o
}

func content(t *testing.T, path string) string {
	t.Helper()
	data := testhelp.ReadFile(t, path)
	return string(data)
}

// The undo history of OpenHands' editor knows the edits of that editor, and not
// what the action write did (docs/reference/openhands-protocol.md, section 5).
func TestWriteHasNoHistory(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{StateDir: t.TempDir()})
	file := filepath.Join(dir, "f.txt")
	write := func(text string) { act(t, e, api.WriteAction{Path: file, Content: text, End: -1}) }
	edit := func(command, old, now string) string {
		t.Helper()
		o := act(t, e, api.EditAction{Command: command, Path: file, FileText: &now, OldStr: &old, NewStr: &now, ImplSource: "oh_aci", Start: 1, End: -1})
		answer, ok := o.(api.EditObservation)
		if !ok {
			t.Fatalf("%s: got %+v", command, o)
		}
		return answer.Content
	}
	undo := func(want, left string) {
		t.Helper()
		if got := edit("undo_edit", "", ""); !strings.HasPrefix(got, want) || content(t, file) != left {
			t.Errorf("got %q and %q in the file, want %q and %q", got, content(t, file), want, left)
		}
	}
	none := "ERROR:\nNo edit history found for " + file
	write("")
	undo(none, "\n")
	write("one")
	undo(none, "one\n")
	edit("str_replace", "one", "two")
	undo("Last edit to "+file, "one\n")
	undo(none, "one\n")
	// An edit below a later write is not undone over it.
	edit("str_replace", "one", "two")
	write("three")
	undo("ERROR:\nThe file "+file+" was changed by other means", "three\n")
	write("two")
	undo("Last edit to "+file, "one\n")
	// A file that the editor made is not removed after a write either.
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	edit("create", "", "")
	write("five")
	undo("ERROR:\nThe file "+file+" was changed by other means", "five\n")
	write("one")

	// Tool calls of other models write with a history.
	act(t, e, api.WriteAction{Dialect: api.DialectGemini, Path: file, Content: "four"})
	undo("Last edit to "+file, "one\n")
}

// Each dialect reaches the editor: with its rules, from the session's directory, and with what tool calls need of the
// answers.
func TestFileDialects(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	file := filepath.Join(dir, "sub", "f.txt")
	run(t, e, "", "mkdir sub; cd sub")

	o := act(t, e, api.WriteAction{Dialect: api.DialectGemini, Path: "f.txt", Content: "a\nb\n"})
	w, ok := o.(api.WriteObservation)
	if !ok || w.Path != file || len(w.SHA256) != 64 || !strings.HasPrefix(w.Content, "Successfully created") || content(t, file) != "a\nb\n" {
		t.Fatalf("write: got %+v", o)
	}
	o = act(t, e, api.ReadAction{Dialect: api.DialectGemini, Path: "f.txt", Offset: new(1)})
	if r, ok := o.(api.ReadObservation); !ok || r.SHA256 != w.SHA256 || !strings.HasSuffix(r.Content, "---\nb\n") {
		t.Errorf("read: got %+v", o)
	}
	act(t, e, api.WriteAction{Path: filepath.Join(dir, ".geminiignore"), Content: "secret*", End: -1})
	act(t, e, api.WriteAction{Path: "secret.txt", Content: "x", End: -1})
	o = act(t, e, api.ReadAction{Dialect: api.DialectGemini, Path: "secret.txt"})
	if c, ok := o.(api.ErrorObservation); !ok || c.Code != "path_not_allowed" {
		t.Errorf("ignored: got %+v", o)
	}
	o = act(t, e, api.EditAction{
		Dialect: api.DialectGemini, Command: "replace", Path: "f.txt", OldStr: new("a"), NewStr: new("A"), IfSHA256: strings.Repeat("0", 64),
	})
	if c, ok := o.(api.ErrorObservation); !ok || c.Code != "conflict" || !strings.Contains(c.Content, w.SHA256) {
		t.Errorf("stale edit: got %+v", o)
	}
	exact := filepath.Join(dir, "exact")
	act(t, e, api.WriteAction{Path: exact, Content: "no line end", End: -1, Exact: new(true)})
	if got, err := os.ReadFile(exact); err != nil || string(got) != "no line end" {
		t.Errorf("exact write: got %q, %v", got, err)
	}
	o = act(t, e, api.WriteAction{Path: file, Content: "x", End: -1, IfSHA256: strings.Repeat("0", 64)})
	if c, ok := o.(api.ErrorObservation); !ok || c.Code != "conflict" {
		t.Errorf("stale write: got %+v", o)
	}
	for _, dialect := range []api.Dialect{api.DialectOpenHandsV1, api.DialectStrands, api.DialectAnthropic} {
		o = act(t, e, api.EditAction{Dialect: dialect, Command: "str_replace", Path: file, OldStr: new("a"), NewStr: new(string(dialect))})
		if ed, ok := o.(api.EditObservation); !ok || ed.Code != "" || len(ed.SHA256) != 64 {
			t.Errorf("%s: got %+v", dialect, o)
		}
		o = act(t, e, api.ReadAction{Dialect: dialect, Path: file, ViewRange: []int{1, 1}})
		if r, ok := o.(api.ReadObservation); !ok || !strings.HasSuffix(r.Content, string(dialect)+"\n") {
			t.Errorf("%s: got %+v", dialect, o)
		}
		o = act(t, e, api.EditAction{Dialect: dialect, Command: "undo_edit", Path: file})
		if content(t, file) != "a\nb\n" {
			t.Errorf("%s: got %+v", dialect, o)
		}
		o = act(t, e, api.EditAction{Dialect: dialect, Command: "str_replace", Path: file, OldStr: new("zz"), NewStr: new("y")})
		if c, ok := o.(api.ErrorObservation); !ok || c.Code != "no_match" || strings.HasPrefix(c.Content, "ERROR") {
			t.Errorf("%s: got %+v", dialect, o)
		}
		o = act(t, e, api.ReadAction{Dialect: dialect, Path: file + "x"})
		if c, ok := o.(api.ErrorObservation); !ok || c.Code != "file_not_found" {
			t.Errorf("%s: got %+v", dialect, o)
		}
	}
	o = act(t, e, api.EditAction{Command: "str_replace", Path: file, OldStr: new("zz"), NewStr: new("y")})
	if ed, ok := o.(api.EditObservation); !ok || ed.Code != "no_match" || !strings.HasPrefix(ed.Content, "ERROR:\n") {
		t.Errorf("OpenHands' own: got %+v", o)
	}
	o = act(t, e, api.EditAction{Command: "replace", Path: file, Edits: []api.Replacement{{OldStr: "a", NewStr: "b"}, {OldStr: "b", NewStr: "c", AllowMultiple: true}}})
	if content(t, file) != "c\nc\n" {
		t.Errorf("several edits: got %+v and %q", o, content(t, file))
	}
}

// A read finds out whether a file is binary before it asks the editor, an edit
// does not, as in the reference; dialects have their own words.
func TestViewOfBinary(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	file := filepath.Join(dir, "p.png")
	testhelp.WriteFile(t, file, "\x89PNG\r\n\x1a\n\x00", 0o600)
	appears := "File validation failed for " + file + ": File appears to be binary and this file type cannot be read or edited by this tool."
	for _, c := range []struct {
		a    api.Action
		want api.Observation
	}{
		{api.ReadAction{Path: file, ImplSource: "oh_aci", ViewRange: []int{0, 0}}, api.ErrorObservation{Content: "ERROR_BINARY_FILE", Code: "binary_file"}},
		{api.ReadAction{Path: file, ImplSource: "oh_aci", Dialect: api.DialectAnthropic}, api.ErrorObservation{Content: appears, Code: "binary_file"}},
		{api.EditAction{Path: file, Command: "view"}, api.EditObservation{Content: "ERROR:\n" + appears, Path: file, ImplSource: "oh_aci", Code: "binary_file"}},
	} {
		if o := act(t, e, c.a); o != c.want {
			t.Errorf("%+v:\ngot  %+v\nwant %+v", c.a, o, c.want)
		}
	}
}

// A model's mistake is answered by the editor, and changes nothing.
func TestInvalidEditorActions(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	file := filepath.Join(dir, "f")
	decoded := func(action string) api.Action {
		t.Helper()
		r, err := api.DecodeRequest([]byte(`{"action":` + strings.ReplaceAll(action, "FILE", file) + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return r.Action
	}
	const create = `{"action":"edit","args":{"command":"create","path":"FILE","file_text":{"a":1}`
	reason := "Invalid `file_text` parameter: it should be a string, got an object."
	for action, want := range map[string]api.Observation{
		create + `}}`:                                api.EditObservation{Content: "ERROR:\n" + reason, Path: file, ImplSource: "oh_aci", Code: "invalid_argument"},
		create + `,"dialect":"anthropic"}}`:          api.ErrorObservation{Content: reason, Code: "invalid_argument"},
		create + `,"impl_source":"llm_based_edit"}}`: api.ErrorObservation{Content: reason, Code: "invalid_argument"},
		`{"action":"read","args":{"path":"FILE","impl_source":"oh_aci","view_range":[1,"2"]}}`: api.ReadObservation{
			Content: "ERROR:\nInvalid `view_range` parameter: [1, '2']. It should be a list of two integers.", Path: file, ImplSource: "oh_aci", Code: "invalid_argument",
		},
		`{"action":"edit","args":{"command":"insert","path":"FILE","insert_line":"","new_str":"x"}}`: api.EditObservation{
			Content: "ERROR:\nInvalid insert_line value: ''. Expected an integer.", Path: file, NewContent: new("x"), ImplSource: "oh_aci", Code: "invalid_argument",
		},
	} {
		if o := act(t, e, decoded(action)); !reflect.DeepEqual(o, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", action, o, want)
		}
	}
	if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want no file", err)
	}
}

func TestPatchAction(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	run(t, e, "", "mkdir sub; cd sub")
	patch := "*** Begin Patch\n*** Add File: n.txt\n+x\n*** End Patch"
	o := act(t, e, api.EditAction{Command: "apply_patch", Patch: &patch})
	if ed, ok := o.(api.EditObservation); !ok || !strings.HasPrefix(ed.Content, "Done!") || ed.Diff == "" || content(t, filepath.Join(dir, "sub", "n.txt")) != "x\n" {
		t.Errorf("got %+v", o)
	}
	for _, test := range []struct {
		a    api.EditAction
		want string
	}{
		{api.EditAction{Patch: &patch, Dialect: api.DialectOpenHandsV1}, "already_exists"},
		{api.EditAction{Dialect: api.DialectOpenHandsV1}, "missing_argument"},
		{api.EditAction{Patch: &patch, Dialect: api.DialectOpenHandsV1, IfSHA256: strings.Repeat("0", 64)}, "invalid_argument"},
	} {
		test.a.Command = "apply_patch"
		o := act(t, e, test.a)
		if c, ok := o.(api.ErrorObservation); !ok || c.Code != test.want {
			t.Errorf("got %+v, want %s", o, test.want)
		}
	}
}

func TestDraftAction(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	file := filepath.Join(dir, "a.json")
	draftOf := func(content string) api.EditAction {
		return api.EditAction{ImplSource: "llm_based_edit", Path: "a.json", Content: &content, Start: 1, End: -1, Lint: true}
	}
	o := act(t, e, draftOf("{\n}\n"))
	if ed, ok := o.(api.EditObservation); !ok || ed.PrevExist || *ed.OldContent != "" || *ed.NewContent != "{\n}\n" || ed.Path != file || len(ed.SHA256) != 64 {
		t.Errorf("got %+v", o)
	}
	o = act(t, e, draftOf("{\n,\n}\n"))
	ed, ok := o.(api.EditObservation)
	if !ok || !ed.PrevExist || *ed.OldContent != "{\n}\n" || *ed.NewContent != "{\n,\n}\n" || ed.ImplSource != "llm_based_edit" ||
		!strings.HasPrefix(ed.Content, "--- "+file) || !strings.Contains(ed.Content, "Linting issues found in the changes:\n- Line 2, Column 1: ") {
		t.Errorf("got %+v", o)
	}
	o = act(t, e, draftOf("# unchanged\nnowhere\n"))
	if c, ok := o.(api.ErrorObservation); !ok || c.Code != "no_match" || content(t, file) != "{\n,\n}\n" {
		t.Errorf("got %+v", o)
	}
	a := draftOf("")
	a.Content = nil
	if c, ok := act(t, e, a).(api.ErrorObservation); !ok || c.Code != "missing_argument" {
		t.Errorf("got %+v", c)
	}
}

func TestDraftModel(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"<updated_code>ONE</updated_code>"}}]}`)
	}))
	defer server.Close()
	model, err := llm.New(llm.Config{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	e, dir := start(t, executor.Config{DraftModel: model})
	file := filepath.Join(dir, "f")
	testhelp.WriteFile(t, file, "one\ntwo\n", 0o600)
	o := act(t, e, api.EditAction{ImplSource: "llm_based_edit", Path: file, Content: new("a draft"), Start: 1, End: 1})
	if content(t, file) != "ONE\ntwo\n" {
		t.Errorf("got %q and %+v", content(t, file), o)
	}
}

// An edit that cannot be undone says so in its answer.
func TestAnswerWithoutHistory(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	e, dir := start(t, executor.Config{StateDir: state, Workspace: executor.WorkspaceConfig{StateDir: filepath.Join(t.TempDir(), "changes")}})
	if err := os.RemoveAll(state); err != nil {
		t.Fatal(err)
	}
	file, text, after := filepath.Join(dir, "f"), "a\n", "b"
	for _, a := range []api.Action{
		api.EditAction{Command: "create", Path: file, FileText: &text, ImplSource: "oh_aci"},
		api.EditAction{Command: "str_replace", Path: file, OldStr: new("a"), NewStr: &after, ImplSource: "oh_aci"},
		api.WriteAction{Path: file, Content: "c", Dialect: api.DialectGemini, End: -1},
	} {
		var got string
		switch o := act(t, e, a).(type) {
		case api.EditObservation:
			got = o.Content
		case api.WriteObservation:
			got = o.Content
		default:
			t.Fatalf("got %+v", o)
		}
		if want := "[This change cannot be undone: it could not be recorded.]"; !strings.HasSuffix(got, want) {
			t.Errorf("%+v: got %q, want %q at its end", a, got, want)
		}
	}
}

// The answer tells a content that is too large for the history from a store without room.
func TestAnswerOfAFullHistory(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{
		StateDir: t.TempDir(), MaxFile: 64 << 20,
		Workspace: executor.WorkspaceConfig{StateDir: filepath.Join(t.TempDir(), "changes"), StoreBytes: 96 << 20},
	})
	for name, size := range map[string]int64{"ten": 10 << 20, "large": 33 << 20} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)); err != nil {
			t.Fatal(err)
		}
		o := act(t, e, api.WriteAction{Path: path, Content: "c", Dialect: api.DialectGemini, End: -1})
		wrote, ok := o.(api.WriteObservation)
		const want = "[This change cannot be undone: the old content is too large to be recorded.]"
		if !ok || strings.HasSuffix(wrote.Content, want) != (name == "large") || fileText(t, path) != "c" {
			t.Errorf("%s: got %.300q", name, api.Content(o))
		}
	}
}

// A read in the format Markdown goes by the session's directory, and complains without the words of an editor.
func TestReadMarkdown(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	file := filepath.Join(dir, "f.csv")
	testhelp.WriteFile(t, file, "a,b\n", 0o600)
	testhelp.WriteFile(t, dir+"/f.txt", "a\nb\nc\nd\n", 0o600)
	got := act(t, e, api.ReadAction{Path: "f.csv", ImplSource: "default", Format: api.FormatMarkdown})
	want := api.ReadObservation{
		Content: "Here's the content of the file " + file + " displayed in Markdown format:\n| a | b |\n| --- | --- |\n", Path: file, ImplSource: "default",
	}
	if o, ok := got.(api.ReadObservation); ok {
		want.SHA256 = o.SHA256 // tested with the editor
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for lines, a := range map[string]api.ReadAction{
		"     2\tb\n     3\tc\n": {Start: 1, End: 3},
		"     4\td\n":            {Start: 3, End: -1},
		"     1\ta\n":            {Start: 2, End: 3, ViewRange: api.LineRange{1, 1}},
	} {
		a.Path, a.Format = "f.txt", api.FormatMarkdown
		if o, ok := act(t, e, a).(api.ReadObservation); !ok || !strings.HasSuffix(o.Content, "f.txt:\n"+lines) {
			t.Errorf("%+v: got %+v, want %q", a, o, lines)
		}
	}
	got = act(t, e, api.ReadAction{Path: "f.pdf", ImplSource: "default", Format: api.FormatMarkdown})
	if o, ok := got.(api.ErrorObservation); !ok || o.Code != "file_not_found" {
		t.Errorf("got %+v", got)
	}
}

// Only a native edit hears of another way to edit a large file.
func TestLargeEditIsNative(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	path := filepath.Join(dir, "large.log")
	testhelp.WriteFile(t, path, "one\n", 0o600)
	if err := os.Truncate(path, 20<<20); err != nil {
		t.Fatal(err)
	}
	legacy := api.Request{Action: api.EditAction{Path: path, Command: "str_replace", OldStr: new("one"), NewStr: new("1"), ImplSource: "oh_aci"}}
	const refusal = "File is too large (20.0MB). Maximum allowed size is 10MB."
	for i, test := range []struct {
		request api.Request
		says    bool
	}{{legacy, false}, {legacy.Native(), true}} {
		o, err := e.Do(t.Context(), test.request)
		edited, ok := o.(api.EditObservation)
		if err != nil || !ok || !strings.Contains(edited.Content, refusal) || strings.Contains(edited.Content, "sed -i") != test.says {
			t.Errorf("%d: got %+v and %v", i, o, err)
		}
	}
}

// The diff of a native edit is a patch; that of the legacy protocol keeps its form.
func TestNativeEditDiffs(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	path := filepath.Join(dir, "f")
	head := "--- " + path + "\n+++ " + path + "\n"
	insert := api.Request{Action: api.EditAction{Path: path, Command: "insert", InsertLine: new(api.LineNumber("1")), NewStr: new("b"), ImplSource: "oh_aci"}}
	patch := api.Request{Action: api.EditAction{Command: "apply_patch", Patch: new("*** Begin Patch\n*** Update File: f\n@@ a\n+b\n*** End Patch"), ImplSource: "oh_aci"}}
	for _, tt := range []struct {
		request api.Request
		want    string
	}{
		{insert, "@@ -1,0 +2,2 @@\n+b\n+"},
		{insert.Native(), "@@ -1 +1,2 @@\n-a\n\\ No newline at end of file\n+a\n+b"},
		{patch, "@@ -1,0 +2 @@\n+b"},
		{patch.Native(), "@@ -1 +1,2 @@\n-a\n\\ No newline at end of file\n+a\n+b\n\\ No newline at end of file"},
	} {
		testhelp.WriteFile(t, path, "a", 0o600)
		o, err := e.Do(t.Context(), tt.request)
		if edited, ok := o.(api.EditObservation); err != nil || !ok || edited.Diff != head+tt.want {
			t.Errorf("got %+v and %v, want %q", o, err, tt.want)
		}
	}
}
