package api

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// HasParameters reports whether the descriptions of the sandbox and the gateway have an operation
// under /v1/, by its method and the template of its path.
func HasParameters(method, path string) bool {
	_, ok := parameters[method+" "+path]
	return ok
}

// CheckQuery refuses a query that cannot be parsed, and a parameter that the operation does not
// have: a misspelt limit must not become none. The error is an *[Error] with status 400.
func CheckQuery(method, path, query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return BadRequest("query: " + err.Error())
	}
	known := parameters[method+" "+path]
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
