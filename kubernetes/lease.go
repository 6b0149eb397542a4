package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/sandbox"
)

// leasePrefix is the prefix of the names of Leases.
const leasePrefix = "actiond-"

// errLeadLost is the cause that ends the context of work.
var errLeadLost = errors.New("another process may have taken the lead")

// Lead is [sandbox.Leader]'s. It holds a Lease, which another process takes if it was
// not renewed for Config.LeaseTime: the work of the old leader may overlap with that of
// the new one for a moment, so work must be harmless when it is done twice.
func (d *Driver) Lead(ctx context.Context, what string, wait bool, work func(context.Context)) error {
	host, _ := os.Hostname() // for people who read the Lease
	lock := &noticedLock{LeaseLock: &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: d.namespace, Name: leaseName(what)},
		Client:     d.api.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "-" + random.Hex(8)},
	}}
	for {
		if !wait {
			if err := d.unheld(ctx, lock); err != nil {
				return err
			}
		}
		lock.held = false
		if err := d.elect(ctx, lock, wait, work); err != nil {
			return err
		}
		switch {
		case lock.held && ctx.Err() != nil:
			return nil //nolint:nilerr // the end of ctx ends the lead
		case ctx.Err() != nil:
			return fmt.Errorf("waiting for the lead of %s: %w", what, context.Cause(ctx))
		case !wait && !lock.held:
			return fmt.Errorf("%w: another process took the lead of %s", sandbox.ErrConflict, what)
		case !wait:
			return nil
		}
		d.config.Logger.WarnContext(ctx, "lost the lead: waiting for it", "lease", lock.LeaseMeta.Name)
	}
}

// leaseName returns a valid name of a Lease: names of pools may have other characters.
func leaseName(what string) string {
	return leasePrefix + strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(what)), "-")
}

// noticedLock is a lock that records whether it was held.
type noticedLock struct {
	*resourcelock.LeaseLock

	held bool
}

// RecordEvent is [resourcelock.Interface]'s. It is called at the beginning and the end of a
// lead.
func (l *noticedLock) RecordEvent(string) { l.held = true }

// unheld fails with ErrConflict while another process holds the lock. After a lock was
// released, it waits so that processes that wait for the lock, and try every retry, get it
// first.
func (d *Driver) unheld(ctx context.Context, lock *noticedLock) error {
	record, _, err := lock.Get(ctx)
	if err == nil && record.HolderIdentity == "" {
		most := time.Duration((1 + leaderelection.JitterFactor) * 1.2 * float64(d.retry()))
		if err := channel.Sleep(ctx, min(most-time.Since(record.RenewTime.Time), most)); err != nil { // clocks differ
			return fmt.Errorf("waiting for the Lease %s: %w", lock.LeaseMeta.Name, err)
		}
		record, _, err = lock.Get(ctx)
	}
	if err == nil && record.HolderIdentity != "" {
		err = d.release(ctx, lock, record)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil || errors.Is(err, sandbox.ErrConflict) {
		return err
	}
	return apiError(ctx, "reading the Lease "+lock.LeaseMeta.Name, err)
}

// release releases a lock that its holder does not renew for Config.LeaseTime, and fails with
// ErrConflict if the holder does. The time in the record is of the holder's clock, which may
// differ.
func (d *Driver) release(ctx context.Context, lock *noticedLock, record *resourcelock.LeaderElectionRecord) error {
	held := fmt.Errorf("%w: %s holds the Lease %s", sandbox.ErrConflict, record.HolderIdentity, lock.LeaseMeta.Name)
	for begun := time.Now(); time.Since(begun) < d.config.LeaseTime; {
		if err := channel.Sleep(ctx, d.retry()); err != nil {
			return err
		}
		now, _, err := lock.Get(ctx)
		if err != nil {
			return err
		}
		if now.HolderIdentity == "" {
			return nil
		}
		if now.HolderIdentity != record.HolderIdentity || !now.RenewTime.Equal(&record.RenewTime) {
			return held
		}
	}
	record.HolderIdentity, record.LeaseDurationSeconds = "", 1
	if err := lock.Update(ctx, *record); apierrors.IsConflict(err) { // it was renewed just now
		return held
	} else if err != nil {
		return err
	}
	return nil
}

// retry is the time between two attempts of a process that waits for a lead.
func (d *Driver) retry() time.Duration { return d.config.LeaseTime * 2 / 15 }

// elect calls work once this process leads, and returns when work has returned and the
// lead was released. Without wait it gives up if another process is faster.
func (d *Driver) elect(ctx context.Context, lock *noticedLock, wait bool, work func(context.Context)) error {
	// The lead does not end with ctx, but after work has returned.
	electing, stop := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.FromSlogHandler(d.config.Logger.Handler())))
	defer stop()
	var leads atomic.Bool
	giveUp := func() {
		if !leads.Load() {
			stop()
		}
	}
	defer context.AfterFunc(ctx, giveUp)()
	retry := d.retry()
	if !wait {
		defer time.AfterFunc(2*retry, giveUp).Stop()
	}
	finished := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: lock.LeaseMeta.Name, ReleaseOnCancel: true,
		LeaseDuration: d.config.LeaseTime, RenewDeadline: d.config.LeaseTime * 2 / 3, RetryPeriod: retry,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(lead context.Context) {
				defer close(finished)
				defer stop()
				leads.Store(true)
				workCtx, end := context.WithCancelCause(ctx)
				defer end(nil)
				defer context.AfterFunc(lead, func() { end(errLeadLost) })()
				work(workCtx)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("preparing the Lease %s: %w", lock.LeaseMeta.Name, err)
	}
	elector.Run(electing)
	if lock.held {
		<-finished
	}
	return nil
}
