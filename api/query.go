package api

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// CheckQuery refuses a query that cannot be parsed, and a parameter that the operation does not
// have: a misspelt limit must not become none. The operation is given by its method and the
// template of its path; only those under /v1/ are checked. The error is an *[Error] with status 400.
func CheckQuery(method, path, query string) error {
	known, ok := parameters[method+" "+path]
	if !ok {
		return nil
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return BadRequest("query: " + err.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if slices.Contains(known, name) {
			continue
		}
		allowed := "none is allowed"
		if len(known) > 0 {
			allowed = "allowed are " + strings.Join(known, ", ")
		}
		return BadRequest(fmt.Sprintf("query: parameter %s is unknown; %s", Excerpt(name), allowed))
	}
	return nil
}
