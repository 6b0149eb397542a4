package keeper_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/executor/internal/keeper"
)

// thing is a value that is kept.
type thing struct {
	number int
	env    string

	mu       sync.Mutex
	lost     string // what Check says
	stops    []bool // for each Stop, whether it was graceful
	released bool
}

func (v *thing) die() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lost = "died"
}

// stopped lists the stops.
func (v *thing) stopped() []bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.stops)
}

func (v *thing) ended() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lost != "" || v.released
}

// factory makes things, which takes a while.
type factory struct {
	takes time.Duration
	err   error

	mu   sync.Mutex
	made []*thing
}

func (f *factory) start(ctx context.Context, _ string, env []string) (*thing, error) {
	f.mu.Lock()
	takes, err := f.takes, f.err
	f.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	v := &thing{number: len(f.made) + 1, env: strings.Join(env, " ")}
	f.made = append(f.made, v)
	return v, nil
}

// thing returns the thing that was made so many others before.
func (f *factory) thing(i int) *thing {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.made[i]
}

func (f *factory) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.made)
}

func (f *factory) set(takes time.Duration, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.takes, f.err = takes, err
}

// config keeps what f makes, ten seconds after the last use.
func (f *factory) config() keeper.Config[*thing] {
	return keeper.Config[*thing]{
		Start: f.start,
		Check: func(v *thing) string {
			time.Sleep(time.Millisecond)
			v.mu.Lock()
			defer v.mu.Unlock()
			return v.lost
		},
		Ended: (*thing).ended,
		Stop: func(v *thing, graceful bool) {
			v.mu.Lock()
			defer v.mu.Unlock()
			v.stops, v.released = append(v.stops, graceful), true
		},
		Env: []string{"A=1"}, Max: 2, MaxNames: 3, IdleTime: 10 * time.Second, IdleText: "was idle",
	}
}

// check makes sure that all things were stopped.
func (f *factory) check(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, v := range f.made {
		v.mu.Lock()
		if !v.released {
			t.Errorf("value %d was not stopped", v.number)
		}
		v.mu.Unlock()
	}
}

// bench is a keeper under test.
type bench struct {
	*testing.T
	keeper  *keeper.Keeper[*thing]
	factory *factory
}

// bubble runs a test of a keeper in a time of its own.
func bubble(t *testing.T, test func(b bench)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &factory{takes: time.Second}
		k := keeper.New(f.config())
		test(bench{t, k, f})
		k.Close()
		f.check(t)
		if err := k.Use(t.Context(), "", -1, func(*keeper.Turn[*thing]) {}); !errors.Is(err, keeper.ErrClosed) {
			t.Errorf("after Close: got %v", err)
		}
	})
}

// use describes one use that takes a while.
func use(t *testing.T, k *keeper.Keeper[*thing], name string, limit, takes time.Duration) string {
	t.Helper()
	var text string
	err := k.Use(t.Context(), name, limit, func(turn *keeper.Turn[*thing]) {
		time.Sleep(takes)
		text = fmt.Sprintf("%d %s", turn.Value.number, turn.Lost)
	})
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(text)
}

func expect(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestUse(t *testing.T) {
	bubble(t, func(b bench) {
		t, k, f := b.T, b.keeper, b.factory
		expect(t, "first", use(t, k, "a", -1, 0), "1")
		expect(t, "again", use(t, k, "a", -1, 0), "1")
		expect(t, "another session", use(t, k, "b", -1, 0), "2")
		f.thing(0).die()
		expect(t, "after its end", use(t, k, "a", -1, 0), "3 died")
		expect(t, "told once", use(t, k, "a", -1, 0), "3")
		if !slices.Equal(f.thing(0).stopped(), []bool{false}) {
			t.Errorf("the value that died was stopped %v", f.thing(0).stopped())
		}
		k.SetEnv([]string{"B=2"})
		_ = k.Use(t.Context(), "a", -1, func(turn *keeper.Turn[*thing]) { turn.End("exited") })
		expect(t, "after a use that ended it", use(t, k, "a", -1, 0), "4")
		expect(t, "environment", f.thing(2).env+", "+f.thing(3).env, "A=1, B=2")
	})
}

// One use after the other, each in its turn; a caller waits as long as its limit.
func TestTurn(t *testing.T) {
	bubble(t, func(b bench) {
		t, k := b.T, b.keeper
		begin := time.Now()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { expect(t, "in turn", use(t, k, "a", -1, time.Second), "1") })
		}
		synctest.Wait()
		expect(t, "limited", use(t, k, "a", 2*time.Second, 0), keeper.ErrBusy.Error())
		all.Wait()
		if took := time.Since(begin).Round(time.Second); took != 6*time.Second {
			t.Errorf("a start and five uses took %v", took)
		}
	})
}

// A start that takes longer than the caller's limit goes on for the next caller,
// and its failure is told.
func TestSlowStart(t *testing.T) {
	bubble(t, func(b bench) {
		t, k, f := b.T, b.keeper, b.factory
		f.set(7*time.Second, nil)
		begin := time.Now()
		for range 3 {
			expect(t, "limited", use(t, k, "a", 2*time.Second, 0), keeper.ErrStarting.Error())
		}
		if took := time.Since(begin); took != 6*time.Second {
			t.Errorf("three limits of 2 s took %v", took)
		}
		if list := k.List(); len(list) != 1 || !list[0].Busy {
			t.Errorf("while it starts: got %+v", list)
		}
		expect(t, "once it is started", use(t, k, "a", 2*time.Second, 0), "1")

		// The failure that came meanwhile is told before the next start.
		f.set(3*time.Second, errors.New("no room"))
		expect(t, "limited", use(t, k, "b", time.Second, 0), keeper.ErrStarting.Error())
		time.Sleep(time.Minute)
		f.set(time.Second, nil)
		expect(t, "told", use(t, k, "b", -1, 0), "no room")
		expect(t, "tried again", use(t, k, "b", -1, 0), "2")

		// A value whose caller did not wait for it is idle, too.
		f.set(3*time.Second, nil)
		k.CloseSession("a")
		expect(t, "limited", use(t, k, "c", time.Second, 0), keeper.ErrStarting.Error())
		time.Sleep(time.Minute)
		expect(t, "idle", use(t, k, "c", -1, 0), "4 was idle")
	})
}

func TestIdle(t *testing.T) {
	bubble(t, func(b bench) {
		t, k, f := b.T, b.keeper, b.factory
		use(t, k, "a", -1, 0)
		for range 5 {
			time.Sleep(9 * time.Second)
			expect(t, "in use", use(t, k, "a", -1, 20*time.Second), "1")
		}
		time.Sleep(11 * time.Second)
		if !slices.Equal(f.thing(0).stopped(), []bool{true}) {
			t.Errorf("the idle value was stopped %v", f.thing(0).stopped())
		}
		if list := k.List(); len(list) != 1 || list[0].Lost != "was idle" || list[0].Live {
			t.Errorf("got %+v", list)
		}
		expect(t, "after it", use(t, k, "a", -1, 0), "2 was idle")
		expect(t, "told once", use(t, k, "a", -1, 0), "2")
	})
}

// A use goes on without its caller, and the next caller hears what became of the
// value.
func TestCallerGone(t *testing.T) {
	bubble(t, func(b bench) {
		t, k := b.T, b.keeper
		use(t, k, "a", -1, 0)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		go func() {
			time.Sleep(time.Second)
			cancel(gone)
		}()
		var finished atomic.Bool
		err := k.Use(ctx, "a", -1, func(turn *keeper.Turn[*thing]) {
			time.Sleep(3 * time.Second)
			turn.End("exited")
			finished.Store(true)
		})
		if !errors.Is(err, gone) || finished.Load() {
			t.Errorf("got %v, finished %t", err, finished.Load())
		}
		expect(t, "the next", use(t, k, "a", -1, 0), "2 exited")
		if err := k.Use(ctx, "b", -1, func(*keeper.Turn[*thing]) {}); !errors.Is(err, gone) {
			t.Errorf("got %v", err)
		}
	})
}

// Closing a session ends its value, frees those that wait, and stops a start.
func TestCloseSession(t *testing.T) {
	bubble(t, func(b bench) {
		t, k, f := b.T, b.keeper, b.factory
		if k.CloseSession("a") {
			t.Error("a session that does not exist was closed")
		}
		use(t, k, "a", -1, 0)
		var all sync.WaitGroup
		all.Go(func() {
			_ = k.Use(t.Context(), "a", -1, func(turn *keeper.Turn[*thing]) {
				for !turn.Value.ended() {
					time.Sleep(time.Second)
				}
				turn.End("was closed")
			})
		})
		synctest.Wait()
		all.Go(func() { expect(t, "waiting", use(t, k, "a", -1, 0), keeper.ErrClosed.Error()) })
		synctest.Wait()
		if !k.CloseSession("a") || f.thing(0).stopped()[0] {
			t.Errorf("stopped %v, want at once", f.thing(0).stopped())
		}
		all.Wait()
		expect(t, "a new one", use(t, k, "a", -1, 0), "2")
		k.CloseSession("a")
		if !slices.Equal(f.thing(1).stopped(), []bool{true}) {
			t.Errorf("the idle value was stopped %v", f.thing(1).stopped())
		}
		all.Go(func() { expect(t, "starting", use(t, k, "b", -1, 0), keeper.ErrClosed.Error()) })
		synctest.Wait()
		begin := time.Now()
		if !k.CloseSession("b") || time.Since(begin) > 0 {
			t.Errorf("closing a session that starts took %v", time.Since(begin))
		}
		all.Wait()
		if f.count() != 2 || len(k.List()) != 0 {
			t.Errorf("got %d values and %v", f.count(), k.List())
		}
	})
}

func TestMax(t *testing.T) {
	bubble(t, func(b bench) {
		t, k, f := b.T, b.keeper, b.factory
		use(t, k, "a", -1, 0)
		use(t, k, "b", -1, 0)
		expect(t, "one too many", use(t, k, "c", -1, 0), keeper.ErrMany.Error())
		expect(t, "one of them", use(t, k, "a", -1, 0), "1")
		f.thing(0).die() // it does not count any more, and its end is remembered
		expect(t, "another", use(t, k, "c", -1, 0), "3")
		expect(t, "too many again", use(t, k, "a", -1, 0), keeper.ErrMany.Error())
		f.thing(1).die()
		expect(t, "told", use(t, k, "a", -1, 0), "4 died")
		f.thing(2).die()
		f.thing(3).die()
		expect(t, "a fourth name", use(t, k, "d", -1, 0), "5")
		if list := k.List(); len(list) > 3 {
			t.Errorf("more names are remembered than 3: %v", list)
		}
	})
}

// Get shares a value, and a start, with any number of callers.
func TestGet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &factory{takes: 3 * time.Second}
		config := f.config()
		config.Check, config.IdleTime = nil, 0
		k := keeper.New(config)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if v, err := k.Get(t.Context(), "a"); err != nil || v.number != 1 {
					t.Errorf("got %v, %v", v, err)
				}
			})
		}
		synctest.Wait()
		if _, ok := k.Lookup("a"); ok {
			t.Error("there is a value before the start is over")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := k.Get(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		all.Wait()
		if v, ok := k.Lookup("a"); !ok || v.number != 1 {
			t.Errorf("got %v, %t", v, ok)
		}

		broken := errors.New("broken")
		f.set(time.Second, broken)
		if err := k.Renew(t.Context(), "a"); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		for range 3 {
			all.Go(func() {
				if _, err := k.Get(t.Context(), "a"); !errors.Is(err, broken) {
					t.Errorf("got %v", err)
				}
			})
		}
		all.Wait()
		f.set(time.Second, nil)
		if err := k.Renew(t.Context(), "a"); err != nil {
			t.Error(err)
		}
		if v, err := k.Get(t.Context(), "a"); err != nil || v.number != 2 {
			t.Errorf("got %v, %v", v, err)
		}
		if !f.thing(0).ended() {
			t.Error("the value before Renew lives")
		}
		k.Close()
		if err := k.Renew(t.Context(), "a"); !errors.Is(err, keeper.ErrClosed) {
			t.Errorf("got %v", err)
		}
		f.check(t)
	})
}

// Whatever comes together, no value is left, none is used twice at a time, and no
// more start than may.
func TestAtOnce(t *testing.T) {
	bubble(t, func(b bench) {
		t, k, f := b.T, b.keeper, b.factory
		var all sync.WaitGroup
		var mu sync.Mutex
		using := map[int]bool{}
		for i := range 200 {
			all.Go(func() {
				name := string(rune('a' + i%3))
				time.Sleep(time.Duration(i*37%100) * 100 * time.Millisecond)
				if i%17 == 0 {
					k.CloseSession(name)
					return
				}
				_ = k.Use(t.Context(), name, time.Duration(i%7)*500*time.Millisecond, func(turn *keeper.Turn[*thing]) {
					mu.Lock()
					if using[turn.Value.number] {
						t.Errorf("value %d is used twice", turn.Value.number)
					}
					using[turn.Value.number] = true
					mu.Unlock()
					time.Sleep(time.Duration(i%11) * 100 * time.Millisecond)
					mu.Lock()
					using[turn.Value.number] = false
					mu.Unlock()
					switch i % 5 {
					case 0:
						turn.Value.die()
					case 1:
						turn.End("exited")
					}
				})
			})
		}
		all.Wait()
		if f.count() < 3 {
			t.Errorf("%d values were made", f.count())
		}
	})
}

// A panic reaches the caller, with the place where it began, and costs the value
// alone.
func TestPanic(t *testing.T) {
	bubble(t, func(b bench) {
		t, k, f := b.T, b.keeper, b.factory
		caught := func(call func()) (text string) {
			defer func() { text = fmt.Sprint(recover()) }()
			call()
			return ""
		}
		got := caught(func() {
			_ = k.Use(t.Context(), "a", -1, func(*keeper.Turn[*thing]) { panic("a defect") })
		})
		if !strings.HasPrefix(got, "a defect\n") || !strings.Contains(got, "keeper_test.go") {
			t.Errorf("got %q, want the panic and its stack", got)
		}
		expect(t, "the next", use(t, k, "a", -1, 0), "2 was stopped after an internal error")
		if !f.thing(0).ended() {
			t.Error("the value of the use that panicked was not stopped")
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := k.Use(ctx, "a", -1, func(*keeper.Turn[*thing]) {
			time.Sleep(2 * time.Second)
			panic("a defect")
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("its caller had gone: got %v", err)
		}
		expect(t, "the next", use(t, k, "a", -1, 0), "3 was stopped after an internal error")

		cfg := f.config()
		cfg.Start = func(context.Context, string, []string) (*thing, error) { panic("no start") }
		broken := keeper.New(cfg)
		defer broken.Close()
		for what, call := range map[string]func() error{
			"Use":   func() error { return broken.Use(t.Context(), "a", -1, func(*keeper.Turn[*thing]) {}) },
			"Get":   func() error { _, err := broken.Get(t.Context(), "b"); return err },
			"Renew": func() error { return broken.Renew(t.Context(), "c") },
		} {
			if got := caught(func() { _ = call() }); !strings.HasPrefix(got, "no start\n") {
				t.Errorf("%s: got %q, want the panic of the start", what, got)
			}
		}
	})
}

// A caller that leaves during the start, or the check, is not served: the use has not begun.
func TestCallerGoneDuringStart(t *testing.T) {
	bubble(t, func(b bench) {
		t, k, f := b.T, b.keeper, b.factory
		f.set(7*time.Second, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := k.Use(ctx, "a", -1, func(*keeper.Turn[*thing]) { t.Error("it was used without a caller") })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		expect(t, "the next finds the start", use(t, k, "a", 7*time.Second, 0), "1")

		ctx, cancel = context.WithTimeout(t.Context(), 0) // over before the check is
		defer cancel()
		_ = k.Use(ctx, "a", -1, func(*keeper.Turn[*thing]) { t.Error("it was used without a caller") })
		time.Sleep(11 * time.Second)
		expect(t, "it was idle", use(t, k, "a", -1, 0), "2 was idle")
	})
}
