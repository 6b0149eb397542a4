package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// FilterNames are the names in a [Filter].
var FilterNames = []string{"id", "name", "owner", "image", "state", "pool", "label"}

// Filter chooses the sandboxes that fit each of its texts, which are NAME=VALUE. A
// label is label=NAME for any value of it, or label=NAME=VALUE. The zero value chooses
// all sandboxes.
type Filter []string

// Check returns an error for an invalid filter.
func (f Filter) Check() error {
	for _, text := range f {
		name, value, both := strings.Cut(text, "=")
		if !slices.Contains(FilterNames, name) || !both || value == "" {
			return fmt.Errorf("filter %.200q: write NAME=VALUE; names are %s", text, strings.Join(FilterNames, ", "))
		}
		if name == "state" && !slices.Contains(states, State(value)) {
			return fmt.Errorf("filter %.200q: states are %s", text, strings.Trim(fmt.Sprint(states), "[]"))
		}
	}
	return nil
}

// Split returns the part of the filter that compares states, and the rest.
func (f Filter) Split() (states, rest Filter) {
	for _, text := range f {
		if strings.HasPrefix(text, "state=") {
			states = append(states, text)
		} else {
			rest = append(rest, text)
		}
	}
	return states, rest
}

// Fits reports whether the filter, which was checked, chooses s.
func (f Filter) Fits(s *Sandbox) bool {
	for _, text := range f {
		name, want, _ := strings.Cut(text, "=")
		if name == "label" {
			label, value, both := strings.Cut(want, "=")
			if has, there := s.Labels[label]; !there || both && has != value {
				return false
			}
			continue
		}
		has := map[string]string{
			"id": s.ID, "name": s.Name, "owner": s.Owner, "image": s.Image, "state": string(s.State), "pool": s.Pool,
		}[name]
		if has != want {
			return false
		}
	}
	return true
}
