package sandbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/actiond/actiond/sandbox"
)

func TestParseGPUs(t *testing.T) {
	t.Parallel()
	const uuid, mig = "GPU-8c05b4b0-7f7d-11ee-b962-0242ac120002", "MIG-1b2c3d4e-7f7d-11ee-b962-0242ac120002"
	for text, want := range map[string]string{
		"": "", "all": "all", "1": "1", "16": "16", "device=" + uuid: "device=" + uuid, uuid + "," + mig: "device=" + uuid + "," + mig,
		"device=MIG-" + uuid + "/1/0": "device=MIG-" + uuid + "/1/0", "nvidia.com/gpu=0": "device=nvidia.com/gpu=0", "device=amd.com/gpu=all," + uuid: "device=amd.com/gpu=all," + uuid,
	} {
		got, err := sandbox.ParseGPUs(text)
		if err != nil || got.String() != want || got.IsZero() != (want == "") {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"0": "at least 1", "-1": "at least 1", "1.5": "at least 1", "device=": "device= and UUIDs", "device=0": "as 'nvidia-smi -L' lists them",
		"none": "must be all", "void": "must be all", uuid + ",": "must be all", uuid + ",all": `"all"`, uuid + "," + uuid: "named twice",
		"x/y=": "must be all", "../gpu=0": "must be all", "GPU-a\nb": "must be all",
	} {
		if got, err := sandbox.ParseGPUs(text); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %q, %v, want %q", text, got, err, want)
		}
	}
}

func FuzzParseGPUs(f *testing.F) {
	for _, seed := range []string{"", "all", "2", "device=GPU-a,MIG-b", "nvidia.com/gpu=0", "device=device=x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := sandbox.ParseGPUs(text)
		if err != nil {
			return
		}
		again, err := sandbox.ParseGPUs(got.String())
		if err != nil || again.String() != got.String() || strings.ContainsAny(got.String(), " \n\x00\"") {
			t.Errorf("%q: got %q, and of that %q, %v", text, got, again, err)
		}
	})
}

// The devices among which the operator lets a creation choose may change between two calls with one key.
func TestGPUsInTheHash(t *testing.T) {
	t.Parallel()
	hash := func(g sandbox.GPUs) string { s := sandbox.Spec{GPUs: g}; return s.Hash() }
	if hash(sandbox.GPUs{Count: 1, Devices: []string{"GPU-a"}}) != hash(sandbox.GPUs{Count: 1}) {
		t.Error("the devices to choose from are part of the hash")
	}
	if hash(sandbox.GPUs{Devices: []string{"GPU-a"}}) == hash(sandbox.GPUs{}) || hash(sandbox.GPUs{Count: 1}) == hash(sandbox.GPUs{Count: 2}) {
		t.Error("GPUs are not part of the hash")
	}
}
