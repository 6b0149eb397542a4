package docker_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/moby/profiles/seccomp"

	"github.com/actiond/actiond/docker"
)

// TestSeccompProfile compares the profile with the default of Moby that plan.go
// names. socketcall is removed: on 32-bit machines it reaches address families
// that the filter on socket refuses.
func TestSeccompProfile(t *testing.T) {
	t.Parallel()
	moby := seccomp.DefaultProfile()
	removed := 0
	for _, call := range moby.Syscalls {
		before := len(call.Names)
		call.Names = slices.DeleteFunc(call.Names, func(name string) bool { return name == "socketcall" })
		removed += before - len(call.Names)
	}
	if removed != 1 {
		t.Errorf("Moby's profile names socketcall %d times, want once", removed)
	}
	var ours seccomp.Seccomp
	decoder := json.NewDecoder(bytes.NewReader([]byte(docker.Profile)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&ours); err != nil {
		t.Fatal(err)
	}
	// Encoded, as some lists are empty on one side and nil on the other.
	got, err := json.MarshalIndent(ours, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	want, err := json.MarshalIndent(moby, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the profile is not Moby's without socketcall: got\n%s\nwant\n%s", got, want)
	}
}
