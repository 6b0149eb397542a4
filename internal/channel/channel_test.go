package channel_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/internal/channel"
)

func TestClosedWithin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, begun := make(chan struct{}), time.Now()
		if channel.Closed(c) || channel.ClosedWithin(c, time.Second) || time.Since(begun) != time.Second {
			t.Errorf("an open channel is closed, or waited for %v", time.Since(begun))
		}
		time.AfterFunc(time.Second, func() { close(c) })
		if !channel.ClosedWithin(c, time.Minute) || !channel.Closed(c) || time.Since(begun) != 2*time.Second {
			t.Errorf("a closed channel is open, or waited for %v", time.Since(begun))
		}
	})
}

func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		begun, enough := time.Now(), errors.New("enough")
		if err := channel.Sleep(t.Context(), time.Second); err != nil || time.Since(begun) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(enough) })
		if err := channel.Sleep(ctx, time.Minute); !errors.Is(err, enough) || time.Since(begun) != 2*time.Second {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
	})
}

func TestGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ended := false
		stop := channel.Go(func(over <-chan struct{}) {
			<-over
			time.Sleep(time.Second)
			ended = true
		})
		synctest.Wait()
		if ended {
			t.Error("it ended before it was stopped")
		}
		if stop(); !ended {
			t.Error("it works after it was stopped")
		}
	})
}
