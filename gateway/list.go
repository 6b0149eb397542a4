package gateway

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/sandbox"
)

// maxPage is the largest value of the parameter limit.
const maxPage = 1000

// page has the parameters of a list.
type page struct {
	filter sandbox.Filter
	limit  int // 0: all
	after  place
}

// place is the position of a sandbox in a list, which is ordered by age. It stays valid
// after the sandbox.
type place struct {
	created time.Time
	id      string
}

func placeOf(s *sandbox.Sandbox) place { return place{s.Created, s.ID} }

func (p place) compare(q place) int {
	return cmp.Or(p.created.Compare(q.created), cmp.Compare(p.id, q.id))
}

// String returns the form in URLs.
func (p place) String() string { return fmt.Sprintf("%d-%s", p.created.UnixNano(), p.id) }

func parsePlace(text string) (place, bool) {
	number, id, _ := strings.Cut(text, "-")
	nanoseconds, err := strconv.ParseInt(number, 10, 64)
	return place{time.Unix(0, nanoseconds), id}, err == nil && sandbox.IsID(id)
}

// parsePage reads the parameters of a list.
func parsePage(query url.Values) (p page, err error) {
	p.filter = query["filter"]
	if err := p.filter.Check(); err != nil {
		return p, refuse(http.StatusBadRequest, "Parameter %v", err)
	}
	states, _ := p.filter.Split()
	if slices.Contains(states, "state=busy") || slices.Contains(states, "state=idle") {
		return p, refuse(http.StatusBadRequest, "Parameter filter %q: a sandbox that is busy or idle is ready here; ask its own /v1/status", states)
	}
	if text, ok := query["limit"]; ok {
		if p.limit, err = strconv.Atoi(text[0]); err != nil || p.limit < 1 || p.limit > maxPage {
			return p, refuse(http.StatusBadRequest, "Parameter limit %.20q: must be a number from 1 to %d", text[0], maxPage)
		}
	}
	if text, ok := query["after"]; ok {
		if p.after, ok = parsePlace(text[0]); !ok {
			return p, refuse(http.StatusBadRequest, `Parameter after %.64q: must be the "next" of another answer`, text[0])
		}
	}
	return p, nil
}

// listSandboxes answers with one page of the sandboxes, without those in pools.
func (g *Gateway) listSandboxes(w http.ResponseWriter, r *http.Request) error {
	p, err := parsePage(r.URL.Query())
	if err != nil {
		return err
	}
	all, err := g.cfg.Driver.List(r.Context())
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(s *sandbox.Sandbox) bool {
		return s.Pool != "" || !p.filter.Fits(s) || placeOf(s).compare(p.after) <= 0
	})
	slices.SortFunc(all, func(a, b *sandbox.Sandbox) int { return placeOf(a).compare(placeOf(b)) })
	list := api.SandboxList{Sandboxes: []api.Sandbox{}}
	if p.limit > 0 && len(all) > p.limit {
		all = all[:p.limit]
		list.Next = placeOf(all[p.limit-1]).String()
	}
	for _, s := range all {
		list.Sandboxes = append(list.Sandboxes, g.describe(r, s))
	}
	return writeJSON(w, http.StatusOK, list)
}
