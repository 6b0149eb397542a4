package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/egress"
)

// Every example of the gateway's document obeys its schema, and those of
// requests can be decoded.
func TestGatewayExamples(t *testing.T) {
	t.Parallel()
	spec := contract.NewGatewaySpec(t)
	for _, e := range spec.Examples() {
		if e.Status != 0 {
			if err := spec.CheckResponse(e.Route.Method, e.Route.Path, e.Status, "application/json", e.Body); err != nil {
				t.Error(err)
			}
			continue
		}
		if err := spec.CheckRequest(e.Route.Method, e.Route.Path, "application/json", e.Body); err != nil {
			t.Error(err)
		}
		var err error
		switch e.Route.Path {
		case "/v1/sandboxes":
			_, err = api.DecodeSandboxSpec(e.Body)
		case "/v1/sandboxes/{id}/renew", "/v1/sandboxes/{id}/ports/{port}/url":
			_, err = api.DecodeRenewal(e.Body)
		case "/start":
			_, err = api.DecodeRuntimeStart(e.Body)
		case "/v1/sandboxes/{id}/network":
			if e.Route.Method == http.MethodPut {
				_, err = egress.DecodePolicy(e.Body)
			} else {
				_, err = egress.ParseChange(e.Body)
			}
		default:
			_, err = api.DecodeRuntimeID(e.Body)
		}
		if err != nil {
			t.Errorf("%s: %v", e.Route.Path, err)
		}
	}
}

func TestDecodeSandboxSpec(t *testing.T) {
	t.Parallel()
	got, err := api.DecodeSandboxSpec([]byte(`{"image":"i","name":"n","owner":"o","env":{"A":"b"},"labels":{"c":"d"},"user":"u","user_id":7,
		"working_dir":"/w","memory":1,"disk":3,"cpus":0.5,"pids":2,"network":"none","read_only":true,"ttl_seconds":90,"idle_limit_seconds":60,"gpus":2,"pull":"never"}`))
	want := api.SandboxSpec{
		Image: "i", Name: "n", Owner: "o", Env: api.Variables{"A": "b"}, Labels: map[string]string{"c": "d"}, User: "u", UserID: 7,
		WorkingDir: "/w", Memory: 1, Disk: 3, CPUs: 0.5, Pids: 2, Network: api.NetworkChoice{Name: "none"}, ReadOnly: true, TTLSeconds: 90, IdleLimitSeconds: 60, GPUs: "2", Pull: "never",
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestGPUChoice(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]api.GPUChoice{
		`{"gpus":1}`: "1", `{"gpus":2.0}`: "2", `{"gpus":0}`: "", `{"gpus":null}`: "", `{"gpus":""}`: "", `{"gpus":"all"}`: "all", `{"gpus":"device=GPU-a"}`: "device=GPU-a",
	} {
		if got, err := api.DecodeSandboxSpec([]byte(body)); err != nil || got.GPUs != want {
			t.Errorf("%s: got %q, %v", body, got.GPUs, err)
		}
	}
}

// A policy is kept as it was sent, because package egress decodes it; its secrets are not printed.
func TestNetworkChoice(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"network":"bridge"}`: `"bridge"`, `{"network":""}`: `""`, `{"network":null}`: `""`, `{}`: `""`,
		`{"network": {"secrets":[{"value":"v\u0061lue"}], "x":1} }`: `{"secrets":[{"value":"v\u0061lue"}], "x":1}`,
	} {
		got, err := api.DecodeSandboxSpec([]byte(body))
		if err != nil {
			t.Errorf("%s: %v", body, err)
			continue
		}
		if again, err := got.Network.MarshalJSON(); err != nil || string(again) != want {
			t.Errorf("%s: %s, %v", body, again, err)
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if printed := fmt.Sprintf(verb, got); strings.Contains(printed, "value") || strings.Contains(printed, "118 ") {
				t.Errorf("%s: printed %s", body, printed)
			}
		}
	}
}

// JSON that cannot be understood is refused with the member's name.
func TestDecodeGatewayRefuses(t *testing.T) {
	t.Parallel()
	spec := func(b []byte) error { _, err := api.DecodeSandboxSpec(b); return err }
	start := func(b []byte) error { _, err := api.DecodeRuntimeStart(b); return err }
	id := func(b []byte) error { _, err := api.DecodeRuntimeID(b); return err }
	for _, tt := range []struct {
		decode     func([]byte) error
		body, want string
	}{
		{spec, `[]`, "object"},
		{spec, `{`, ""},
		{spec, `{} {}`, ""},
		{spec, `{"mounts":[]}`, `"mounts" is unknown`},
		{spec, `{"security_opts":["seccomp=unconfined"]}`, `"security_opts" is unknown`},
		{spec, `{"network":"host"}`, `"network" must be one of`},
		{spec, `{"network":"database"}`, `"network" must be one of`},
		{spec, `{"network":["bridge"]}`, `"network" must be a string or an object, got a list`},
		{spec, `{"network":7}`, `"network" must be a string or an object`},
		{spec, `{"network":"\ud800"}`, `"network"`},
		{spec, `{"gpus":-1}`, `"gpus" must be a number, "all", or "device=" and names of GPUs`},
		{spec, `{"gpus":1.5}`, `"gpus" must be a number`},
		{spec, `{"gpus":["GPU-a"]}`, `"gpus" must be a number`},
		{spec, `{"cpus":-1}`, `"cpus"`},
		{spec, `{"cpus":"NaN"}`, `"cpus"`},
		{spec, `{"ttl_seconds":1e300}`, `"ttl_seconds"`},
		{spec, `{"idle_seconds":1}`, `"idle_seconds" is unknown`},
		{spec, `{"idle_limit_seconds":-1}`, `"idle_limit_seconds"`},
		{spec, `{"env":{"A":1}}`, `"env"`},
		{spec, `{"env":{"A":"\ud800"}}`, "half of a surrogate pair"}, // a request is never altered
		{spec, `{"labels":{"A":1}}`, `"labels" must be an object of strings, got an object`},
		{spec, `{"memory":1e30}`, `"memory"`},
		{start, `{"image":"i"}`, `"session_id" is missing`},
		{start, `{"session_id":"s"}`, `"image" is missing`},
		{start, `{"image":"i","session_id":""}`, `"session_id"`},
		{start, `{"image":"i","session_id":"s","resource_factor":1000}`, `"resource_factor"`},
		{id, `{}`, `"runtime_id" is missing`},
	} {
		err := tt.decode([]byte(tt.body))
		refusal, ok := errors.AsType[*api.Error](err)
		if !ok || refusal.Status != http.StatusBadRequest || !strings.Contains(refusal.Detail, tt.want) {
			t.Errorf("%s: got %v, want a refusal with %q", tt.body, err, tt.want)
		}
	}
}

func FuzzDecodeGateway(f *testing.F) {
	for _, seed := range []string{`{}`, `{"image":"i","ttl_seconds":1,"env":{"A":"b"}}`, `{"image":"i","session_id":"s","command":["x"]}`, `{"runtime_id":"x"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		spec, err := api.DecodeSandboxSpec(body)
		if err == nil && (spec.TTLSeconds < 0 || spec.IdleLimitSeconds < 0 || !(spec.CPUs >= 0)) {
			t.Errorf("got %+v", spec)
		}
		start, err := api.DecodeRuntimeStart(body)
		if err == nil && (start.SessionID == "" || !(start.ResourceFactor > 0)) {
			t.Errorf("got %+v", start)
		}
		_, _ = api.DecodeRuntimeID(body)
	})
}
