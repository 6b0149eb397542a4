package api_test

import (
	"fmt"
	"testing"

	"github.com/actiond/actiond/api"
)

func TestObservationString(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		o    api.Observation
		want string
	}{
		{api.RunObservation{Command: "echo hi", Content: "hi"}, "Command `echo hi` executed with exit code 0.\nhi"},
		{api.FileObservation{Path: "/f", SHA256: "ab"}, "I wrote to the file /f."},
		{api.ErrorObservation{Content: "File not found: /f"}, "File not found: /f"},
		{api.ReadObservation{Path: "/f", Content: "one\ntwo\n"}, "I read the file /f.\none\ntwo\n"},
		{api.NullObservation{}, "No observation"},
	} {
		if got := fmt.Sprint(test.o); got != test.want {
			t.Errorf("%s: got %q, want %q", test.o.Kind(), got, test.want)
		}
	}
}
