package server_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
)

// TestDocs holds docs/reference/server.md to the server: its endpoints, which of them are
// open, and its metrics.
func TestDocs(t *testing.T) {
	t.Parallel()
	data := testhelp.ReadFile(t, "../docs/reference/server.md")
	s, proxy := networked(t, `{"mode":"no-network"}`)
	part := func(title string) string {
		_, rest, _ := strings.Cut(string(data), "\n## "+title+"\n")
		text, _, _ := strings.Cut(rest, "\n## ")
		return text
	}

	open, told := map[string]bool{}, map[string]bool{"/sse": true, "/messages/": true} // "both without"
	for _, rt := range s.Routes() {
		open[rt.Path] = rt.Open
	}
	path := regexp.MustCompile("`[A-Z ]*(/[^`?]*)")
	for line := range strings.Lines(part("Endpoints")) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, found := range path.FindAllStringSubmatch(cells[1], -1) {
			told[found[1]] = true
			if isOpen, ok := open[found[1]]; !ok || isOpen != (strings.TrimSpace(cells[2]) == "yes") {
				t.Errorf("there is %v, open %v: %s", ok, isOpen, line)
			}
		}
	}
	for path := range open {
		if !told[path] {
			t.Errorf("there is nothing about %s", path)
		}
	}

	ask(t, proxy, "a.example:1")
	action, metrics := post("/execute_action", runTrue), get("/metrics")
	action.key, metrics.key = ownersKey, ownersKey
	action.send(s)
	exposed := regexp.MustCompile(`(?m)^# TYPE (actiond_\w+)`)
	wantSame(t, exposed.FindAllStringSubmatch(metrics.send(s).Body.String(), -1),
		regexp.MustCompile("`(actiond_[a-z_]+)").FindAllStringSubmatch(part("Metrics"), -1))
}

// wantSame compares what two expressions found.
func wantSame(t *testing.T, got, want [][]string) {
	t.Helper()
	set := func(list [][]string) []string {
		names := map[string]bool{}
		for _, found := range list {
			names[found[1]] = true
		}
		return slices.Sorted(maps.Keys(names))
	}
	if got, want := set(got), set(want); !slices.Equal(got, want) {
		t.Errorf("there are %q\nsaid to be %q", got, want)
	}
}
