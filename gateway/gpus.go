package gateway

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/sandbox"
)

// gpusOf returns the GPUs that a creation asks for, which are some of the operator's.
func (g *Gateway) gpusOf(asked api.GPUChoice) (sandbox.GPUs, error) {
	want, err := sandbox.ParseGPUs(string(asked))
	own := g.cfg.GPUs
	switch {
	case err != nil || want.IsZero():
		return want, err
	case own.IsZero():
		return want, refuse(http.StatusUnprocessableEntity, "gpus: this gateway gives out no GPUs; leave them out, or have its operator start it with --gpus")
	case want.Count > max(own.Count, len(own.Devices)):
		return want, refuse(http.StatusUnprocessableEntity, "gpus: this gateway gives out %d GPUs in all; ask for no more", max(own.Count, len(own.Devices)))
	case own.Devices == nil: // the platform chooses
		return want, nil
	case want.Count != 0:
		return sandbox.GPUs{Count: max(want.Count, 0), Devices: own.Devices}, nil
	}
	for _, name := range want.Devices {
		if !slices.Contains(own.Devices, name) {
			return want, refuse(http.StatusUnprocessableEntity, "gpus: %s is not a GPU of this gateway; ask for a number of them", name)
		}
	}
	return want, nil
}

// admitGPUs refuses a creation beyond the number of GPUs that the gateway gives out where the platform chooses them.
// The admission is held.
func (g *Gateway) admitGPUs(id string, want sandbox.GPUs, all []*sandbox.Sandbox) error {
	if want.Count <= 0 || want.Devices != nil {
		return nil
	}
	inUse := 0
	for _, s := range all {
		if s.ID == id {
			return nil
		}
		if _, counted := g.makingGPUs[s.ID]; !counted && s.State != sandbox.Stopped && s.State != sandbox.Gone {
			inUse += max(s.GPUs.Count, 0)
		}
	}
	for other, gpus := range g.makingGPUs {
		if other != id {
			inUse += gpus
		}
	}
	if most := g.cfg.GPUs.Count; inUse+want.Count > most {
		return api.TooMany(fmt.Sprintf("%d of the %d GPUs of this gateway are in use: ask for fewer, remove a sandbox, or wait until one ends", inUse, most))
	}
	return nil
}
