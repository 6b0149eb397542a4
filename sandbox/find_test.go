package sandbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/actiond/actiond/sandbox"
)

func TestFind(t *testing.T) {
	t.Parallel()
	all := []*sandbox.Sandbox{
		{ID: "ada123456789", Name: "build"}, {ID: "ada123999999", Name: "c0ffee00"}, {ID: "c0ffee001234", Name: "ada123"}, {ID: "c0ffee111111", Name: "x"},
	}
	for _, tt := range []struct {
		ref  string
		want string // the id
		err  error
		says string
	}{
		{"ada123456789", "ada123456789", nil, ""},
		{"build", "ada123456789", nil, ""},
		{"ada123", "c0ffee001234", nil, ""}, // a name before the beginning of an id
		{"c0ffee1", "c0ffee111111", nil, ""},
		{"c0ffee", "", sandbox.ErrAmbiguous, "2 sandboxes"},
		{"ada", "", sandbox.ErrNotFound, `"ada": no such sandbox; of an id write at least 6 digits`},
		{"a", "", sandbox.ErrNotFound, "at least 6 digits"},
		{"b", "", sandbox.ErrNotFound, `"b": no such sandbox`},
		{"", "", sandbox.ErrNotFound, ""},
	} {
		s, err := sandbox.Find(all, tt.ref)
		if !errors.Is(err, tt.err) || (s != nil) != (tt.want != "") || s != nil && s.ID != tt.want || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: got %+v, %v", tt.ref, s, err)
		}
	}
}
