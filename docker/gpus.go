package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/actiond/actiond/sandbox"
)

// GPUs is [sandbox.GPULister]'s.
func (h *Host) GPUs(ctx context.Context) ([]string, error) {
	learned, err := h.learn(ctx)
	if err != nil || !learned.local {
		return nil, err
	}
	return h.listGPUs(ctx)
}

// listTime bounds nvidia-smi, which takes seconds where the driver sets up the GPUs first.
const listTime = 30 * time.Second

// hostGPUs returns the UUIDs of the GPUs of this host, nil where the program that knows them is not installed.
func hostGPUs(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	list := exec.CommandContext(ctx, "nvidia-smi", "-L")
	list.WaitDelay = time.Second
	var said bytes.Buffer
	list.Stdout, list.Stderr = &said, &said
	err := list.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing the GPUs by 'nvidia-smi -L': %w: %s", err, strings.TrimSpace(said.String()))
	}
	return wholeGPUs(said.String()), nil
}

var listedGPU = regexp.MustCompile(`\(UUID: (\S+)\)`)

// wholeGPUs returns the UUIDs in the output of nvidia-smi without those of GPUs that are split: their parts (MIG), which are
// listed after them, are given by UUID alone.
func wholeGPUs(list string) (uuids []string) {
	for line := range strings.Lines(list) {
		found := listedGPU.FindStringSubmatch(line)
		switch {
		case found == nil:
		case strings.HasPrefix(found[1], "GPU-"):
			uuids = append(uuids, found[1])
		case len(uuids) > 0 && strings.HasPrefix(uuids[len(uuids)-1], "GPU-"):
			uuids[len(uuids)-1] = "" // split
		}
	}
	return slices.DeleteFunc(uuids, func(uuid string) bool { return uuid == "" })
}

// takeGPUs chooses GPUs that no other sandbox of the engine than own has, and keeps others from them until unlock: until
// then the container has the label, or runs.
func (h *Host) takeGPUs(ctx context.Context, want sandbox.GPUs, own string) (got sandbox.GPUs, unlock func(), err error) {
	if want.IsZero() {
		return want, func() {}, nil
	}
	unlock, err = h.state.lock(ctx, "gpus")
	if err != nil {
		return want, nil, err
	}
	if got, err = h.chooseGPUs(ctx, want, own); err != nil {
		unlock()
		return want, nil, err
	}
	return got, unlock, nil
}

// chooseGPUs is takeGPUs with the lock held. Where it is not known which there are, the engine counts.
func (h *Host) chooseGPUs(ctx context.Context, want sandbox.GPUs, own string) (got sandbox.GPUs, err error) {
	known := want.Devices
	if known == nil {
		if known, err = h.GPUs(ctx); err != nil || known == nil {
			return want, err
		}
	}
	need := want.Count
	if need < 1 {
		need = len(known)
	}
	if need > len(known) || need == 0 {
		return got, sandbox.Invalid("GPUs %q: this host has %d to choose from; ask for no more", want, len(known))
	}
	users, err := h.gpuUsers(ctx, known, own)
	if err != nil {
		return got, err
	}
	var inUse []string
	for _, name := range known {
		if user := users[gpuKey(name)]; user == "" {
			got.Devices = append(got.Devices, name)
		} else {
			inUse = append(inUse, name+" by sandbox "+user)
		}
	}
	if free := len(got.Devices); free < need {
		return got, fmt.Errorf("%w: GPUs needed: %d, free: %d of %d; in use are %s: stop or remove one, or wait until it ends",
			sandbox.ErrQuota, need, free, len(known), strings.Join(inUse, ", "))
	}
	got.Devices = got.Devices[:need]
	return got, nil
}

// gpuUsers returns the ids of the sandboxes that have GPUs, of every controller of the engine. known are the GPUs in the
// order by which the engine counts them. One that ended has none until it is started again.
func (h *Host) gpuUsers(ctx context.Context, known []string, own string) (map[string]string, error) {
	containers, err := h.list(ctx, "listing the sandboxes with GPUs", labelManaged+"=sandbox")
	if err != nil {
		return nil, err
	}
	users := map[string]string{}
	for _, c := range containers {
		has, err := sandbox.ParseGPUs(c.Labels[labelGPUs])
		if err != nil || c.ID == own || c.State == container.StateExited || c.State == container.StateDead {
			continue
		}
		devices := has.Devices
		switch {
		case has.Count == sandbox.AllGPUs:
			devices = known
		case has.Count > 0:
			devices = known[:min(has.Count, len(known))]
		}
		for _, name := range devices {
			users[gpuKey(name)] = c.Labels[labelID]
		}
	}
	return users, nil
}

// gpuKey returns the UUID in the name of a device, or else the name.
func gpuKey(name string) string {
	if _, uuid, _ := strings.Cut(name, "="); strings.HasPrefix(uuid, "GPU-") || strings.HasPrefix(uuid, "MIG-") {
		return uuid
	}
	return name
}

// deviceRequests asks the engine for GPUs, as 'docker run' does by --gpus and --device.
func deviceRequests(g sandbox.GPUs) (all []container.DeviceRequest) {
	var uuids, names []string
	for _, name := range g.Devices {
		if strings.Contains(name, "=") {
			names = append(names, name)
		} else {
			uuids = append(uuids, name)
		}
	}
	if g.Count != 0 || uuids != nil {
		all = append(all, container.DeviceRequest{Driver: "nvidia", Count: g.Count, DeviceIDs: uuids, Capabilities: [][]string{{"gpu"}}})
	}
	if names != nil {
		all = append(all, container.DeviceRequest{Driver: "cdi", DeviceIDs: names})
	}
	return all
}

// gpuHint returns advice where the engine refuses GPUs.
func gpuHint(err error) string {
	has := func(text string) bool { return strings.Contains(err.Error(), text) }
	switch {
	case has(`could not select device driver "cdi"`):
		return "The engine has no devices by such names: it must be Docker 25 or later with the feature cdi, and 'docker info' lists them."
	case has("could not select device driver"):
		return "The engine cannot give GPUs: install the NVIDIA Container Toolkit on its machine and restart it, or leave --gpus out."
	case has("CDI device injection failed"):
		return "'docker info' lists the devices that the engine knows; 'nvidia-ctk cdi generate' describes those of NVIDIA."
	case has("nvidia-container-cli"):
		return "'nvidia-smi -L' lists the GPUs of the engine's machine, if its driver works."
	}
	return ""
}
