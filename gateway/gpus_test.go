package gateway_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/actiond/actiond/gateway"
	"github.com/actiond/actiond/sandbox"
)

const sandboxes = "/v1/sandboxes"

// Clients get GPUs that the operator gives out, and no others.
func TestGPUs(t *testing.T) {
	t.Parallel()
	none := newFixture(t)
	want(t, none.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":1}`), 422, "this gateway gives out no GPUs")
	want(t, none.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":"some"}`), 422, `GPUs \"some\": must be all, a number`)
	want(t, none.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":-1}`), 400, `\"gpus\" must be a number`)
	want(t, none.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":0}`), 201, `"labels"`)

	h := newFixture(t, func(_ *fixture, c *gateway.Config) { c.GPUs = sandbox.GPUs{Devices: []string{"GPU-a", "GPU-b"}} })
	want(t, h.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":3}`), 422, "gives out 2 GPUs in all")
	want(t, h.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":"device=GPU-a,GPU-c"}`), 422, "GPU-c is not a GPU of this gateway")
	want(t, h.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":"nvidia.com/gpu=all"}`), 422, "is not a GPU of this gateway")
	want(t, h.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","name":"one","gpus":"GPU-b"}`), 201, `"gpus":"device=GPU-b"`)
	want(t, h.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":1}`, "Idempotency-Key", "k"), 201, `"gpus":"device=GPU-a"`)
	want(t, h.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":1}`, "Idempotency-Key", "k"), 200, `"gpus":"device=GPU-a"`)
	want(t, h.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":"all"}`), 429, "GPU-b by sandbox")
	want(t, h.ask(t, "GET", sandboxes, sandboxes+"?filter=name=one", ""), 200, `"gpus":"device=GPU-b"`)
	want(t, h.ask(t, "DELETE", sandboxes+"/{id}", sandboxes+"/one", ""), 204, "")
	want(t, h.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":1}`), 201, `"gpus":"device=GPU-b"`)
}

// Where the platform chooses, no more are in use than the operator gives out, also by creations at one moment.
func TestGPUsByNumber(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // without nvidia-smi the driver does not choose
	h := newFixture(t, func(_ *fixture, c *gateway.Config) { c.GPUs = sandbox.GPUs{Count: 3} })
	want(t, h.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":4}`), 422, "gives out 3 GPUs in all")
	var made, refused atomic.Int32
	var group sync.WaitGroup
	for range 6 {
		group.Go(func() {
			switch w := h.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":1}`); w.Code {
			case http.StatusCreated:
				made.Add(1)
			case http.StatusTooManyRequests:
				refused.Add(1)
				if !strings.Contains(w.Body.String(), "3 of the 3 GPUs of this gateway are in use") {
					t.Errorf("got %s", w.Body)
				}
			default:
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
	group.Wait()
	if made.Load() != 3 || refused.Load() != 3 {
		t.Errorf("%d were made and %d refused, want 3 and 3", made.Load(), refused.Load())
	}
	all, err := h.host.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all { // each end frees them
		h.engine.Lock()
		name := h.engine.Containers[s.Instance].Name
		h.engine.Unlock()
		h.engine.End(name, 0)
	}
	want(t, h.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":2}`, "Idempotency-Key", "two"), 201, `"gpus":"2"`)
	want(t, h.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":2}`, "Idempotency-Key", "two"), 200, `"gpus":"2"`)
	want(t, h.ask(t, "POST", sandboxes, sandboxes, `{"image":"debian","gpus":2}`), 429, "2 of the 3 GPUs")
}
