package sandbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/actiond/actiond/internal/channel"
)

// Reap prunes every so often until ctx ends, and less often while that fails, to
// avoid a thundering herd after an outage of the platform. If the driver is a
// [Leader], one process of several prunes.
func Reap(ctx context.Context, p Pruner, every time.Duration, logger *slog.Logger) {
	leader, ok := p.(Leader)
	if !ok {
		reap(ctx, p, every, logger)
		return
	}
	err := leader.Lead(ctx, "reaper", true, func(ctx context.Context) { reap(ctx, p, every, logger) })
	if err != nil && ctx.Err() == nil {
		logger.ErrorContext(ctx, "cannot prune", slog.Any("error", err))
	}
}

func reap(ctx context.Context, p Pruner, every time.Duration, logger *slog.Logger) {
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
		if channel.Sleep(ctx, wait) != nil {
			return
		}
	}
}
