//go:build integration

package integration

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/docker"
	"github.com/actiond/actiond/internal/testhelp"
	"github.com/actiond/actiond/sandbox"
)

// gpuHook stands in the place of NVIDIA's, by whose presence an engine has a driver for GPUs: it makes a device in the container
// for each GPU that the engine asks for, which is not a GPU, and for a group alone.
const gpuHook = `#!/bin/sh
set -e
state=$(cat)
field() { printf %s "$state" | tr ',{}' '\n' | sed -n "s/^\"$1\":\"*\([^\"]*\).*/\1/p" | head -n 1; }
config=$(field bundle)/config.json
root=$(tr ',{}' '\n' <"$config" | sed -n '/^"path":/{s/^"path":"\([^"]*\).*/\1/p;q}')
for name in $(grep -o 'NVIDIA_VISIBLE_DEVICES=[^"]*' "$config" | tail -n 1 | cut -d = -f 2 | tr , ' '); do
	nsenter -t "$(field pid)" -m sh -c 'mknod -m 660 "$1" c 1 3 && chown 0:4242 "$1"' sh "$root/dev/nvidia-$name"
done
`

// TestDockerGPUs has an engine give out devices, and opens them as the user of a sandbox. No GPU is needed.
func TestDockerGPUs(t *testing.T) {
	bin := t.TempDir()
	testhelp.WriteFile(t, filepath.Join(bin, "nvidia-container-runtime-hook"), gpuHook, 0o700)
	testhelp.WriteFile(t, filepath.Join(bin, "nvidia-smi"), "#!/bin/sh\necho 'GPU 0: Fake (UUID: GPU-a)'\necho 'GPU 1: Fake (UUID: GPU-b)'\n", 0o700)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	e := newEngine(t, nil)
	e.load(t, busyboxImage)
	h := testHost(t, func(c *docker.Config) { c.Engine = e.address })
	spec := sandbox.Spec{Image: busyboxImage, Network: "none"}
	without := create(t, h, spec)
	spec.GPUs = sandbox.GPUs{Count: 1}
	first, second := create(t, h, spec), create(t, h, spec)
	const look = "id -G; cd /dev; for d in nvidia-*; do if echo x > $d; then echo opens $d; fi; done 2>&1"
	for want, s := range map[string]*sandbox.Sandbox{"opens nvidia-GPU-a": first, "opens nvidia-GPU-b": second} {
		out, _ := run(t, s, look)
		groups, devices, _ := strings.Cut(out, "\n")
		if !strings.Contains(" "+groups+" ", " 4242 ") || devices != want {
			t.Errorf("got %q, want group 4242, and %s", out, want)
		}
	}
	if out, _ := run(t, without, look); strings.Contains(out, "4242") || strings.Contains(out, "opens") {
		t.Errorf("without GPUs: got %q", out)
	}
	if _, err := h.Create(t.Context(), spec); !errors.Is(err, sandbox.ErrQuota) || !strings.Contains(err.Error(), "GPU-a by sandbox "+first.ID) {
		t.Errorf("beyond all GPUs: got %v", err)
	}
	if err := h.Stop(t.Context(), first, 0); err != nil {
		t.Fatal(err)
	}
	if out, _ := run(t, create(t, h, spec), look); !strings.Contains(out, "opens nvidia-GPU-a") {
		t.Errorf("after an end: got %q", out)
	}

	// What the engine does not have it refuses when the container starts.
	spec.GPUs = sandbox.GPUs{Devices: []string{"vendor.example/none=0"}}
	_, err := h.Create(t.Context(), spec)
	if started, ok := errors.AsType[*sandbox.StartError](err); !ok || !strings.Contains(started.Hint, "docker info") {
		t.Errorf("a device that does not exist: got %v", err)
	}
}
