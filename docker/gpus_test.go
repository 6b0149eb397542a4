package docker_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/docker/dockertest"
	"github.com/actiond/actiond/sandbox"
)

// gpus parses what a test asks for.
func gpus(t *testing.T, text string) sandbox.GPUs {
	t.Helper()
	g, err := sandbox.ParseGPUs(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// config returns the container of a sandbox, as the engine was asked for it.
func config(f *dockertest.Engine, s *sandbox.Sandbox) (container.Config, container.HostConfig) {
	f.Lock()
	defer f.Unlock()
	c := f.Containers[s.Instance]
	return *c.Config, *c.Host
}

// What the engine is asked for, on a machine where it is not known which GPUs there are.
func TestGPURequests(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	h := fakeHost(t, f)
	docker.SetGPUs(h, nil, nil)
	gpu := [][]string{{"gpu"}}
	for text, want := range map[string][]container.DeviceRequest{
		"":                    nil,
		"all":                 {{Driver: "nvidia", Count: -1, Capabilities: gpu}},
		"2":                   {{Driver: "nvidia", Count: 2, Capabilities: gpu}},
		"device=GPU-a,MIG-b":  {{Driver: "nvidia", DeviceIDs: []string{"GPU-a", "MIG-b"}, Capabilities: gpu}},
		"amd.com/gpu=0":       {{Driver: "cdi", DeviceIDs: []string{"amd.com/gpu=0"}}},
		"GPU-c,x.com/nic=one": {{Driver: "nvidia", DeviceIDs: []string{"GPU-c"}, Capabilities: gpu}, {Driver: "cdi", DeviceIDs: []string{"x.com/nic=one"}}},
	} {
		s := create(t, h, sandbox.Spec{Image: "i", GPUs: gpus(t, text)})
		made, host := config(f, s)
		if !reflect.DeepEqual(host.DeviceRequests, want) {
			t.Errorf("%q: got %+v, want %+v", text, host.DeviceRequests, want)
		}
		// Without that, a runtime of NVIDIA gives what the image asks for.
		if !slices.Equal(made.Env, []string{sandbox.NoGPUs}) || slices.Contains(made.Cmd, "--device-groups") != (text != "") {
			t.Errorf("%q: variables %q, arguments %q", text, made.Env, made.Cmd)
		}
		listed, err := h.Get(t.Context(), s.ID)
		if err != nil || !reflect.DeepEqual(listed.GPUs, gpus(t, text)) {
			t.Errorf("%q: listed as %+v, %v", text, listed.GPUs, err)
		}
		d, err := h.Inspect(t.Context(), s)
		if err != nil || strings.Contains(strings.Join(d.LostProtection, " "), "GPUs") != (text != "") {
			t.Errorf("%q: lost %q, %v", text, d.LostProtection, err)
		}
		if err := h.Delete(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// A GPU is one sandbox's at a time, for all processes and controllers of an engine, until it ends.
func TestGPUsAreExclusive(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	state := t.TempDir()
	hosts := []*docker.Host{
		fakeHost(t, f, func(c *docker.Config) { c.StateDir = state }), fakeHost(t, f, func(c *docker.Config) { c.StateDir = state }), fakeHost(t, f),
	}
	known := []string{"GPU-a", "GPU-b", "GPU-c", "GPU-d"}
	for _, h := range hosts {
		docker.SetGPUs(h, known, nil)
	}
	all := make([]*sandbox.Sandbox, 4)
	var group sync.WaitGroup
	for i := range all { // of one state directory; the lock is in it
		group.Go(func() { all[i] = create(t, hosts[i%2], sandbox.Spec{Image: "i", GPUs: sandbox.GPUs{Count: 1}}) })
	}
	group.Wait()
	var given []string
	for _, s := range all {
		listed, err := hosts[0].Get(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		given = append(given, listed.GPUs.Devices...)
	}
	slices.Sort(given)
	if !slices.Equal(given, known) {
		t.Fatalf("four sandboxes got %q", given)
	}
	holder, err := hosts[0].Get(t.Context(), all[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	held := holder.GPUs.Devices[0]
	for _, text := range []string{"1", "all", held, "nvidia.com/gpu=" + held} {
		_, err := hosts[2].Create(t.Context(), sandbox.Spec{Image: "i", GPUs: gpus(t, text)})
		if !errors.Is(err, sandbox.ErrQuota) || !strings.Contains(err.Error(), fmt.Sprintf("%s by sandbox %s", text, holder.ID)) && !strings.Contains(err.Error(), held+" by sandbox "+holder.ID) {
			t.Errorf("%s: got %v", text, err)
		}
	}
	if _, err := hosts[2].Create(t.Context(), sandbox.Spec{Image: "i", GPUs: sandbox.GPUs{Count: 5}}); !errors.Is(err, sandbox.ErrInvalid) || !strings.Contains(err.Error(), "4 to choose from") {
		t.Errorf("more than there are: got %v", err)
	}

	// One that ended frees it, also for another controller, and cannot be started while that has it.
	f.End(containerOf(f, holder), 0)
	next := create(t, hosts[2], sandbox.Spec{Image: "i", GPUs: sandbox.GPUs{Count: 1}})
	if listed, err := hosts[2].Get(t.Context(), next.ID); err != nil || !slices.Equal(listed.GPUs.Devices, []string{held}) {
		t.Errorf("after an end: got %+v, %v, want %s", listed, err, held)
	}
	if err := hosts[0].Start(t.Context(), holder); !errors.Is(err, sandbox.ErrQuota) || !strings.Contains(err.Error(), held+" by sandbox "+next.ID) {
		t.Errorf("starting without its GPU: got %v", err)
	}
	if err := hosts[2].Delete(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	if err := hosts[0].Start(t.Context(), holder); err != nil {
		t.Errorf("starting with its GPU: %v", err)
	}
}

func containerOf(f *dockertest.Engine, s *sandbox.Sandbox) string {
	f.Lock()
	defer f.Unlock()
	return f.Containers[s.Instance].Name
}

// A creation chooses among the GPUs that it may have, and a program that fails to list them says so.
func TestGPUsToChooseFrom(t *testing.T) {
	t.Parallel()
	f := dockertest.New(t)
	h := fakeHost(t, f)
	docker.SetGPUs(h, nil, errors.New("driver mismatch"))
	s := create(t, h, sandbox.Spec{Image: "i", GPUs: sandbox.GPUs{Count: 1, Devices: []string{"GPU-y", "GPU-z"}}})
	if listed, err := h.Get(t.Context(), s.ID); err != nil || listed.GPUs.String() != "device=GPU-y" {
		t.Errorf("got %q, %v", listed.GPUs, err)
	}
	if _, err := h.Create(t.Context(), sandbox.Spec{Image: "i", GPUs: sandbox.GPUs{Count: 1}}); err == nil || !strings.Contains(err.Error(), "driver mismatch") {
		t.Errorf("got %v", err)
	}
}

// An engine that gives no GPUs refuses them when the container starts: its words and the next step are told, and nothing is left.
func TestGPUsRefusedByEngine(t *testing.T) {
	t.Parallel()
	for refusal, want := range map[string]string{
		`could not select device driver "nvidia" with capabilities: [[gpu]]`:                        "install the NVIDIA Container Toolkit",
		`could not select device driver "cdi" with capabilities: []`:                                "the feature cdi",
		"CDI device injection failed: unresolvable CDI devices x.com/gpu=7":                         "'docker info' lists the devices",
		"nvidia-container-cli: device error: GPU-7: unknown device: unknown":                        "'nvidia-smi -L' lists the GPUs",
		"OCI runtime create failed: nothing about devices: the hint of another failure must remain": "",
	} {
		f := dockertest.New(t)
		h := fakeHost(t, f)
		docker.SetGPUs(h, []string{"GPU-a"}, nil)
		f.Refusals = map[string]error{"start": errors.New(refusal)}
		_, err := h.Create(t.Context(), sandbox.Spec{Image: "i", GPUs: sandbox.GPUs{Count: 1}})
		if started, ok := errors.AsType[*sandbox.StartError](err); !ok || !strings.Contains(err.Error(), refusal) || want != "" && !strings.Contains(started.Hint, want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if left := f.States(); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// Of a GPU that is split, the parts are given by name alone.
func TestWholeGPUs(t *testing.T) {
	t.Parallel()
	const list = `GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa-1)
  MIG 3g.20gb     Device  0: (UUID: MIG-cccc-1)
  MIG 3g.20gb     Device  1: (UUID: MIG-cccc-2)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-aaaa-2)
GPU 2: (evil) (UUID: GPU-aaaa-3)
`
	if got := docker.WholeGPUs(list); !slices.Equal(got, []string{"GPU-aaaa-2", "GPU-aaaa-3"}) {
		t.Errorf("got %q", got)
	}
}
