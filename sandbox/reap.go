package sandbox

import (
	"context"
	"log/slog"
	"time"
)

// Reap prunes every so often until ctx ends, and less often while that fails, to
// avoid a thundering herd after an outage of the platform.
func Reap(ctx context.Context, p Pruner, every time.Duration, logger *slog.Logger) {
	wait := every
	for {
		removed, err := p.Prune(ctx, false)
		for _, r := range removed {
			logger.InfoContext(ctx, "removed a sandbox", slog.String("sandbox", r.ID), slog.String("reason", r.Reason))
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = min(2*wait, 10*every)
			logger.ErrorContext(ctx, "cannot prune", slog.Any("error", err), slog.Duration("next", wait))
		default:
			wait = every
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}
