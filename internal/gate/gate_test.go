package gate

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// Wait returns after the last work, and Close lets none begin.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		var ended, waited atomic.Bool
		release := make(chan struct{})
		if !g.Begin() || !g.Go(func() { <-release; ended.Store(true) }) {
			t.Fatal("an open gate lets nothing begin")
		}
		if !g.Close() || g.Close() {
			t.Error("Close is to return true at its first call alone")
		}
		if g.Begin() || g.Go(func() { t.Error("work began behind a closed gate") }) {
			t.Error("a closed gate lets work begin")
		}
		go func() {
			g.Wait()
			waited.Store(true)
		}()
		g.Done()
		synctest.Wait()
		if waited.Load() {
			t.Error("Wait returned while work was under way")
		}
		close(release)
		synctest.Wait()
		if !waited.Load() || !ended.Load() {
			t.Errorf("ended %v, waited %v", ended.Load(), waited.Load())
		}
	})
}

// Work that begins while the gate is closed either is refused or ends before Wait returns.
func TestGateRace(t *testing.T) {
	for range 200 {
		var g Gate
		var running atomic.Int64
		begun := make(chan struct{})
		for range 8 {
			go func() {
				<-begun
				for g.Begin() {
					running.Add(1)
					running.Add(-1)
					g.Done()
				}
			}()
		}
		close(begun)
		g.Close()
		g.Wait()
		if n := running.Load(); n != 0 {
			t.Fatalf("%d still at work", n)
		}
	}
}
