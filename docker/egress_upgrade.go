package docker

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/actiond/actiond/egress"
)

// replaceEgress removes an egress proxy of an earlier release, if no connection is open: this creation
// starts the next one. Meanwhile nothing passes.
func (h *Host) replaceEgress(ctx context.Context) error {
	if _, ok := release(h.config.Version); !ok || h.egressCurrent.Load() {
		return nil
	}
	unlock, err := h.state.lock(ctx, "egress")
	if err != nil {
		return err
	}
	defer unlock()
	info, err := h.inspect(ctx, "looking for the egress proxy", h.egressName())
	if isNotFound(err) {
		return nil // the next one is of this release
	}
	if err != nil {
		return err
	}
	labels := info.Config.Labels
	if labels[labelManaged] != "egress" || labels[labelController] != h.controller {
		return nil // raiseEgress reports it
	}
	if !later(h.config.Version, labels[labelVersion]) || !h.outdated(labels[labelBinary]) {
		h.egressCurrent.Store(true)
		return nil
	}
	var metrics []byte
	if err := h.askEgress(ctx, http.MethodGet, "/metrics", &metrics); err == nil {
		if _, open, _ := egress.ReadMetrics(metrics); open > 0 {
			return nil // a later creation does it, or 'doctor --restart-egress'
		}
	} else if ctx.Err() != nil {
		return err
	}
	return h.discard(ctx, info.ID)
}

// later reports whether a version is that of a later release than another one, which may be unknown.
func later(version, than string) bool {
	own, ok := release(version)
	other, _ := release(than)
	return ok && slices.Compare(own[:], other[:]) > 0
}

// release returns the numbers of a release's version, zeros for another one.
func release(version string) (numbers [3]int, ok bool) {
	n, _ := fmt.Sscanf(version, "v%d.%d.%d", &numbers[0], &numbers[1], &numbers[2])
	if n < len(numbers) {
		return [3]int{}, false
	}
	return numbers, true
}
