package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/actiond/actiond/sandbox"
)

// IDRange is a range of user ids, both ends included.
type IDRange struct{ First, Last int }

// DefaultUserIDs is above the ids that distributions give to accounts as they are
// made, below those they keep for themselves, and inside the range that an engine
// with user mapping can map.
var DefaultUserIDs = IDRange{40000, 59999}

// ParseIDRange reads FIRST-LAST.
func ParseIDRange(text string) (IDRange, error) {
	first, last, found := strings.Cut(text, "-")
	low, lowErr := strconv.Atoi(first)
	high, highErr := strconv.Atoi(last)
	r := IDRange{low, high}
	if !found || lowErr != nil || highErr != nil {
		return IDRange{}, sandbox.Invalid("user ids %q: must be FIRST-LAST, such as %v", text, DefaultUserIDs)
	}
	return r, r.check()
}

func (r IDRange) check() error {
	if r.First < 1 || r.Last < r.First || r.Last > sandbox.MaxUserID {
		return sandbox.Invalid("user ids %v: must be from 1 to %d, the lower one first", r, sandbox.MaxUserID)
	}
	return nil
}

// String is FIRST-LAST.
func (r IDRange) String() string { return fmt.Sprintf("%d-%d", r.First, r.Last) }

// noUsers are ids that mean "no user" to kernels and file servers.
var noUsers = map[int]bool{65534: true, 65535: true}

// pickUserID notes the user id of a sandbox that is about to be made and saves the
// state file. The kernel counts inotify instances, pipe buffers and message queues for
// each user id, whatever the container, so a sandbox whose id nothing else decides
// gets one that no other sandbox of the engine has.
func (h *Host) pickUserID(ctx context.Context, spec *sandbox.Spec, id string, n *stateFile) error {
	n.UserID = spec.UserID
	if spec.UserID != 0 || spec.User == "root" {
		return h.state.save(id, *n)
	}
	unlock, err := h.state.lock(ctx, "users")
	if err != nil {
		return err
	}
	defer unlock()
	used, err := h.usedUserIDs(ctx)
	if err != nil {
		return err
	}
	if n.UserID, err = h.config.UserIDs.pick(used); err != nil {
		return err
	}
	return h.state.save(id, *n)
}

// pick is an id of the range that is not used. It begins at a random one: another
// controller on the same engine may pick at the same moment.
func (r IDRange) pick(used map[int]int) (int, error) {
	size := r.Last - r.First + 1
	start := rand.N(size) //nolint:gosec // it need not be secret
	for i := range size {
		id := r.First + (start+i)%size
		if used[id] == 0 && !noUsers[id] {
			return id, nil
		}
	}
	return 0, fmt.Errorf("%w: all user ids from %d to %d belong to sandboxes: remove some, or widen the range with --uid-range", sandbox.ErrConflict, r.First, r.Last)
}

// usedUserIDs counts the sandboxes of each user id: those that the engine has, of
// any controller, and those of this one that are still being made.
func (h *Host) usedUserIDs(ctx context.Context) (map[int]int, error) {
	containers, err := h.list(ctx, "listing the sandboxes", labelManaged+"=sandbox")
	if err != nil {
		return nil, err
	}
	used := map[int]int{}
	made := map[string]bool{}
	for _, c := range containers {
		_, id, _ := strings.Cut(c.Labels[labelUser], ":")
		if uid, err := strconv.Atoi(id); err == nil {
			used[uid]++
		}
		if c.Labels[labelController] == h.controller {
			made[c.Labels[labelID]] = true
		}
	}
	ids, err := h.state.ids()
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if made[id] {
			continue
		}
		n, err := h.state.load(id)
		switch {
		case errors.Is(err, fs.ErrNotExist): // its creation has not come so far
		case err != nil: // torn by a crash of the host; Prune removes it
			h.config.Logger.WarnContext(ctx, "cannot read the state file of a sandbox that has no container", "sandbox", id, "error", err)
		default:
			used[n.UserID]++
		}
	}
	return used, nil
}
