package gateway_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
)

// Pages have every sandbox once, in a fixed order, also if one that was seen goes. Those
// of one second are in the order of their ids.
func TestList(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	ids := map[string]string{}
	for i, body := range []string{
		`{"image":"debian","name":"a","owner":"me","labels":{"team":"x"}}`, `{"image":"debian","name":"b","owner":"you"}`,
		`{"image":"debian","name":"c","owner":"me"}`, `{"image":"debian","name":"d","owner":"me","labels":{"team":"y"}}`,
	} {
		s := h.make(t, body, api.IdempotencyKeyHeader, string(rune('0'+i)))
		ids[s.Name] = s.ID
	}
	list := func(query string) (names []string, next string) {
		got := into[api.SandboxList](t, h.ask(t, "GET", "/v1/sandboxes", "/v1/sandboxes"+query, ""))
		for _, s := range got.Sandboxes {
			names = append(names, s.Name)
		}
		return names, got.Next
	}
	for query, wanted := range map[string]string{
		"": "a b c d", "?filter=owner=me": "a c d", "?filter=owner%3Dme&filter=label=team": "a d", "?filter=label=team=y": "d", "?filter=name=none": "",
		"?filter=state=ready&limit=1000": "a b c d",
	} {
		if names, next := list(query); strings.Join(slices.Sorted(slices.Values(names)), " ") != wanted || next != "" {
			t.Errorf("%s: got %q, next %q, want %q", query, names, next, wanted)
		}
	}
	order, _ := list("?filter=owner=me")
	all, next := list("?filter=owner=me&limit=2")
	want(t, h.ask(t, "DELETE", "/v1/sandboxes/{id}", "/v1/sandboxes/"+ids[order[1]], ""), 204, "") // the last of the page
	names, next := list("?filter=owner=me&limit=2&after=" + url.QueryEscape(next))
	if all = append(all, names...); !slices.Equal(all, order) || next != "" {
		t.Errorf("pages: got %q, next %q, want %q", all, next, order)
	}
	for query, text := range map[string]string{
		"?filter=state=nonsense": "states are pending creating", "?filter=state=idle": "is ready here", "?filter=state=ready&filter=state=busy": "is ready here",
		"?filter=owner": "NAME=VALUE", "?filter=color=red": "names are id", "?limit=0": "from 1 to 1000", "?limit=x": "from 1 to 1000", "?limit=1001": "from 1 to 1000",
		"?after=x": "another answer", "?after=": "another answer", "?after=1-../../x": "another answer",
	} {
		want(t, h.ask(t, "GET", "/v1/sandboxes", "/v1/sandboxes"+query, ""), 400, text)
	}
}
