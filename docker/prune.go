package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"

	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/sandbox"
)

// Prune completes or removes the unfinished sandboxes of controllers that died while they
// created or claimed one, and removes sandboxes whose time is up. Afterwards each creation
// has left exactly one sandbox or none. It skips sandboxes whose lock another caller holds,
// and the containers of other controllers. With dryRun it only reports. If something
// cannot be removed, it goes on with the rest.
func (h *Host) Prune(ctx context.Context, dryRun bool) ([]sandbox.Removal, error) {
	all, err := h.List(ctx)
	if err != nil {
		return nil, err
	}
	var removed []sandbox.Removal
	var errs []error
	note := func(r *sandbox.Removal, err error) {
		if r != nil {
			removed = append(removed, *r)
		}
		errs = append(errs, err)
	}
	for _, box := range all {
		s, err := h.own(box)
		if err != nil {
			return nil, err
		}
		note(h.pruneSandbox(ctx, s, dryRun))
	}
	ids, err := h.state.ids()
	errs = append(errs, err)
	for _, id := range ids {
		note(h.pruneDirectory(ctx, id, dryRun))
	}
	unneeded, err := h.tendEgress(ctx, dryRun)
	removed, errs = append(removed, unneeded...), append(errs, err)
	fillers, err := h.containers(ctx, "filler")
	errs = append(errs, err)
	var now time.Time
	if len(fillers) > 0 {
		now, err = h.engineTime(ctx)
		errs = append(errs, err)
	}
	for _, c := range fillers {
		if now.Sub(time.Unix(c.Created, 0)) < fillTime {
			continue
		}
		var err error
		if !dryRun {
			err = h.discard(ctx, c.ID)
		}
		note(&sandbox.Removal{ID: nameOf(c), Reason: "its creator died while putting the server into a volume"}, err)
	}
	return removed, errors.Join(errs...)
}

// pruneSandbox removes the sandbox if there is a reason.
func (h *Host) pruneSandbox(ctx context.Context, s *instance, dryRun bool) (*sandbox.Removal, error) {
	unlock, err := h.state.tryLock(s.origin)
	if errors.Is(err, filelock.ErrLocked) {
		return nil, nil //nolint:nilnil // nothing to remove
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	// The sandbox may have changed since it was listed; a claim gives it another name.
	if err := h.refresh(ctx, s); err != nil {
		if errors.Is(err, sandbox.ErrNotFound) {
			return nil, nil //nolint:nilnil // nothing to remove
		}
		return nil, err
	}
	reason, err := h.reason(ctx, s, time.Now())
	if reason == "" || err != nil {
		return nil, err
	}
	if !dryRun {
		if err := h.destroy(ctx, s); err != nil {
			return nil, err
		}
	}
	return &sandbox.Removal{ID: s.ID, Name: s.Name, Reason: reason}, nil
}

// reason says why a sandbox that no caller works on is to be removed; "" for others.
func (h *Host) reason(ctx context.Context, s *instance, now time.Time) (string, error) {
	n, err := h.state.load(s.origin)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "its key is lost", nil
	case err != nil:
		return "", err
	case !n.Done:
		return "its creator died", nil
	case s.Pool != "" && n.Claimed:
		return "its claimer died", nil
	case s.Pool != "" && s.State == sandbox.Stopped:
		return "it died in the pool", nil
	case s.Overdue(now) != "":
		return s.Overdue(now), nil
	case s.State == sandbox.Gone:
		return "its removal was not finished", nil
	}
	idle, err := h.idleSince(ctx, s)
	if err != nil || s.IdleLimit <= 0 || idle.IsZero() || now.Before(idle.Add(s.IdleLimit)) {
		return "", err
	}
	return fmt.Sprintf("it was idle for more than %v", s.IdleLimit), nil
}

// idleSince is the end of the last action, or of the container if that ended.
// Zero says that it is busy, or does not tell.
func (h *Host) idleSince(ctx context.Context, s *instance) (time.Time, error) {
	switch {
	case s.IdleLimit <= 0:
		return time.Time{}, nil
	case s.State == sandbox.Ready:
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		status, err := s.status(ctx)
		if err != nil {
			h.config.Logger.WarnContext(ctx, "a sandbox does not tell how it is", slog.String("sandbox", s.ID), slog.Any("error", err))
			return time.Time{}, nil
		}
		if status.Busy {
			return time.Time{}, nil
		}
		return status.Since, nil
	case s.State == sandbox.Stopped:
		info, err := h.engine.ContainerInspect(ctx, s.Instance)
		if err != nil {
			return time.Time{}, engineError(ctx, "looking at sandbox "+s.ID, err)
		}
		ended, err := time.Parse(time.RFC3339Nano, info.State.FinishedAt)
		if err != nil {
			return time.Time{}, fmt.Errorf("reading when sandbox %s ended: %w", s.ID, err)
		}
		return ended, nil
	}
	return time.Time{}, nil
}

// pruneDirectory removes the directory of a sandbox that has no container.
func (h *Host) pruneDirectory(ctx context.Context, id string, dryRun bool) (*sandbox.Removal, error) {
	if !sandbox.IsID(id) {
		return nil, nil //nolint:nilnil // not made by this package
	}
	unlock, err := h.state.tryLock(id)
	if errors.Is(err, filelock.ErrLocked) {
		return nil, nil //nolint:nilnil // nothing to remove
	}
	if err != nil {
		return nil, err
	}
	defer unlock()
	found, err := h.list(ctx, "looking for the container of sandbox "+id, labelController+"="+h.controller, labelID+"="+id)
	if len(found) > 0 || err != nil {
		return nil, err
	}
	if !dryRun {
		if err := h.disconnect(ctx, id); err != nil {
			return nil, err
		}
		if err := h.state.remove(id); err != nil {
			return nil, err
		}
	}
	return &sandbox.Removal{ID: id, Reason: "it has a directory and no container"}, nil
}

// PruneServers removes the volumes with servers of other versions that no
// container uses, and returns their names.
func (h *Host) PruneServers(ctx context.Context) ([]string, error) {
	keep := map[string]bool{}
	for arch := range h.config.Servers {
		s, err := h.serverFor(arch)
		if err != nil {
			return nil, err
		}
		name := h.config.Prefix + "server-" + s.sum[:32]
		keep[name], keep[name+"-ok"] = true, true
	}
	list, err := h.engine.VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelManaged+"=server"))})
	if err != nil {
		return nil, engineError(ctx, "listing the servers' volumes", err)
	}
	// In this order a volume comes before the one that marks it as filled, which no
	// container uses: it goes only with the other.
	slices.SortFunc(list.Volumes, func(a, b *volume.Volume) int { return strings.Compare(a.Name, b.Name) })
	var removed []string
	for _, v := range list.Volumes {
		if keep[v.Name] {
			continue
		}
		switch err := h.engine.VolumeRemove(ctx, v.Name, false); {
		case err == nil:
			removed = append(removed, v.Name)
		case isConflict(err): // it is in use
			keep[v.Name+"-ok"] = true
		case !isNotFound(err):
			return removed, engineError(ctx, "removing volume "+v.Name, err)
		}
	}
	return removed, nil
}
