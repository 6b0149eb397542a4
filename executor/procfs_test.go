package executor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/testhelp"
)

// File actions run on threads of the server, to which procfs shows the server's memory
// map and descriptors. No action shows or changes these, by whatever path.
func TestActionsOnOwnProcfs(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/proc/self", link); err != nil {
		t.Fatal(err)
	}
	own := fmt.Sprintf("/proc/%d", os.Getpid())
	before := testhelp.ReadFile(t, "/proc/self/comm")
	old, now := strings.TrimSpace(string(before)), "changed"
	answers := map[string]api.Observation{}
	for _, base := range []string{"/proc/self", own, own + fmt.Sprintf("/task/%d", os.Getpid()), link, "/proc/thread-self"} {
		for name, a := range map[string]api.Action{
			"read":        api.ReadAction{Path: base + "/maps", End: -1},
			"view":        api.ReadAction{Path: base + "/maps", ImplSource: "oh_aci"},
			"view of all": api.ReadAction{Path: base, ImplSource: "oh_aci"},
			"gemini":      api.ReadAction{Path: base + "/maps", Dialect: api.DialectGemini},
			"write":       api.WriteAction{Path: base + "/comm", Content: now, End: -1},
			"edit":        api.EditAction{Command: "str_replace", Path: base + "/comm", OldStr: &old, NewStr: &now, ImplSource: "oh_aci"},
			"grep":        api.GrepAction{Path: base + "/maps", Pattern: "r-xp"},
			"grep of all": api.GrepAction{Path: base, Pattern: "r-xp", Include: "maps"},
			"list":        api.ListAction{Path: base + "/fd"},
			"glob":        api.GlobAction{Path: base, Pattern: "fdinfo/*"},
		} {
			answers[base+" "+name] = act(t, e, a)
		}
	}
	for name, o := range answers {
		text := fmt.Sprintf("%+v", o)
		if strings.Contains(text, "r-xp ") || strings.Contains(text, "[stack]") || strings.Contains(text, "fdinfo/") ||
			strings.Contains(text, "oom_score_adj") || strings.Contains(text, " -> ") {
			t.Errorf("%s: got %.300s", name, text)
		}
	}
	if after, err := os.ReadFile("/proc/self/comm"); err != nil || string(after) != string(before) {
		t.Errorf("the server is called %q now, %v", after, err)
	}
	// The rest of procfs is there.
	if o, ok := act(t, e, api.ReadAction{Path: "/proc/meminfo", End: -1}).(api.ReadObservation); !ok || !strings.Contains(o.Content, "MemTotal") {
		t.Errorf("got %+v", o)
	}
}

// A path through a descriptor of the server names no file, as for /v1/files.
func TestActionsThroughDescriptors(t *testing.T) {
	t.Parallel()
	e, dir := start(t, executor.Config{})
	file := filepath.Join(dir, "file")
	testhelp.WriteFile(t, file, "secret\n", 0o600)
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	below, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer below.Close()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(fmt.Sprintf("/dev/fd/%d", f.Fd()), link); err != nil {
		t.Fatal(err)
	}
	old, now := "secret", "changed"
	for _, path := range []string{fmt.Sprintf("/dev/fd/%d", f.Fd()), fmt.Sprintf("/proc/self/fd/%d", f.Fd()), fmt.Sprintf("/proc/self/fd/%d/file", below.Fd()), link} {
		for _, a := range []api.Action{
			api.ReadAction{Path: path, End: -1},
			api.ReadAction{Path: path, ImplSource: "oh_aci"},
			api.ReadAction{Path: path, Dialect: api.DialectGemini},
			api.WriteAction{Path: path, Content: now, End: -1},
			api.EditAction{Command: "str_replace", Path: path, OldStr: &old, NewStr: &now, ImplSource: "oh_aci"},
			api.GrepAction{Path: path, Pattern: "s.cret"},
		} {
			if text := fmt.Sprintf("%+v", act(t, e, a)); strings.Contains(text, "secret\n") {
				t.Errorf("%s of %s: got %s", a.Kind(), path, text)
			}
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "secret\n" {
		t.Errorf("the file is %q, %v", text, err)
	}
}
