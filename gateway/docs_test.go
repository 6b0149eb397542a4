package gateway_test

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/internal/testhelp"
)

// TestDocs holds the list of metrics in docs/reference/gateway.md to the gateway, which
// has a warm pool and made a sandbox.
func TestDocs(t *testing.T) {
	t.Parallel()
	data := testhelp.ReadFile(t, "../docs/reference/gateway.md")
	h := newFixture(t)
	h.make(t, `{"image":"debian"}`)
	names := func(expression, text string) []string {
		set := map[string]bool{}
		for _, found := range regexp.MustCompile(expression).FindAllStringSubmatch(text, -1) {
			set[found[1]] = true
		}
		return slices.Sorted(maps.Keys(set))
	}
	_, said, _ := strings.Cut(string(data), "\n## Figures for Prometheus\n")
	want := names("`(?:actiond_gateway|…)_([a-z_]+)", said)
	got := names(`(?m)^# TYPE actiond_gateway_(\w+)`, h.ask(t, "GET", "/metrics", "/metrics", "").Body.String())
	if !slices.Equal(got, want) {
		t.Errorf("there are %q\nsaid to be %q", got, want)
	}
	for _, file := range []string{"alerts.yaml", "grafana.json"} {
		data := testhelp.ReadFile(t, "../docs/operators/"+file)
		used := names(`actiond_gateway_([a-z_]+?)(?:_bucket)?\b`, string(data))
		if unknown := slices.DeleteFunc(used, func(name string) bool { return slices.Contains(got, name) }); len(used) == 0 || len(unknown) > 0 {
			t.Errorf("%s uses %q, which the gateway does not have", file, unknown)
		}
	}
}
