package actions_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
)

// fake is an executor whose actions do what a test says.
type fake struct {
	do func(ctx context.Context, w api.Watch) (api.Observation, error)
}

func (f fake) Watch(ctx context.Context, _ api.Request, w api.Watch) (api.Observation, error) {
	return f.do(ctx, w)
}

func (f fake) Turn(api.Request) api.Turn { return nil } //nolint:ireturn // of the interface

// manager returns a manager whose actions do what a function says.
func manager(t *testing.T, do func(ctx context.Context, w api.Watch) (api.Observation, error)) *actions.Manager {
	t.Helper()
	return managerWith(t, actions.NewMemory(64<<20), do)
}

// managerWith is manager with a memory.
func managerWith(t *testing.T, memory *actions.Memory, do func(ctx context.Context, w api.Watch) (api.Observation, error)) *actions.Manager {
	t.Helper()
	j, err := journal.Open(journal.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return actions.New(actions.Config{Journal: j, Executor: fake{do}, Memory: memory, Ended: func(context.Context, *actions.Call, error, time.Duration) {}})
}

// call is a detached action with the id "a".
func call() *actions.Call {
	return &actions.Call{
		ID: "a", Digest: sha256.Sum256(nil), Kind: "exec", Form: "action", Detached: true, Encode: api.EncodeObservation,
		Request: api.Request{Action: api.ExecAction{}},
	}
}

// start starts an action that must be the first one with its id.
func start(t *testing.T, m *actions.Manager, c *actions.Call) *actions.Run {
	t.Helper()
	run, arrival, err := m.Start(c)
	if err != nil || arrival != actions.First {
		t.Fatalf("got arrival %v, %v", arrival, err)
	}
	go m.Do(t.Context(), run, func() {})
	return run
}

// say returns the content of the answer of a run, or its error.
func say(t *testing.T, run *actions.Run) string {
	t.Helper()
	answer, err := run.Answer(t.Context())
	if err != nil {
		return err.Error()
	}
	o := answer.Observation
	if answer.Body != nil {
		if o, err = api.DecodeObservation(answer.Body); err != nil {
			t.Fatal(err)
		}
	}
	return api.Content(o)
}

// An action runs once, however many callers bring its id, and all get its answer, also after its end.
func TestOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ran, end := 0, make(chan struct{})
		m := manager(t, func(context.Context, api.Watch) (api.Observation, error) {
			ran++
			<-end
			return api.NullObservation{Content: "once"}, nil
		})
		run := start(t, m, call())
		synctest.Wait()
		joined, arrival, err := m.Start(call())
		if err != nil || arrival != actions.During || joined != run {
			t.Fatalf("got arrival %v, %v", arrival, err)
		}
		if run.Wait(t.Context(), time.Minute) {
			t.Error("the action ended before its end")
		}
		close(end)
		for range 2 { // then from the journal
			if got := say(t, joined); got != "once" || joined.UnderWay() {
				t.Errorf("got %q", got)
			}
			if joined, arrival, err = m.Start(call()); err != nil || arrival != actions.After {
				t.Fatalf("got arrival %v, %v", arrival, err)
			}
		}
		if ran != 1 {
			t.Errorf("it ran %d times", ran)
		}
		other := call()
		other.Digest = sha256.Sum256([]byte("other"))
		if _, _, err := m.Start(other); !errors.Is(err, journal.ErrOther) {
			t.Errorf("got %v", err)
		}
	})
}

// A refused action leaves no record: the next caller may carry it out.
func TestRefused(t *testing.T) {
	t.Parallel()
	m := manager(t, func(context.Context, api.Watch) (api.Observation, error) { return nil, api.BadRequest("no") })
	for range 2 {
		run := start(t, m, call())
		_, err := run.Answer(t.Context())
		if refusal, ok := errors.AsType[*api.Error](err); !ok || refusal.Detail != "no" {
			t.Errorf("got %v", err)
		}
		if found, err := m.Find("a"); found != nil || err != nil {
			t.Errorf("got %v, %v", found, err)
		}
	}
}

// A cancelled action does not begin, or hears of it, and one that panics or outlives the manager has an
// unknown result. The context of a caller ends its wait alone.
func TestEnds(t *testing.T) {
	t.Parallel()
	begins := func(ctx context.Context, w api.Watch) (api.Observation, error) {
		w.Queue()
		<-ctx.Done()
		if err := w.Begin(); err != nil {
			return nil, err
		}
		return nil, context.Cause(ctx)
	}
	for name, tt := range map[string]struct {
		do    func(ctx context.Context, w api.Watch) (api.Observation, error)
		end   func(m *actions.Manager, run *actions.Run)
		state journal.State
		said  string
	}{
		"cancelled before it begins": {begins, (*actions.Manager).Cancel, journal.Cancelled, "was cancelled before it began"},
		"cancelled while it runs": {func(_ context.Context, w api.Watch) (api.Observation, error) {
			err := w.Begin()
			<-w.Cancelled
			return api.NullObservation{Content: "stopped"}, err
		}, (*actions.Manager).Cancel, journal.Done, "stopped"},
		"stopped before it begins": {begins, func(m *actions.Manager, _ *actions.Run) { m.Stop() }, journal.Running, "shutting down"},
		"panic": {func(_ context.Context, w api.Watch) (api.Observation, error) {
			err := w.Begin()
			w.Output(api.Output{Data: []byte("before")})
			<-w.Cancelled
			panic(err)
		}, (*actions.Manager).Cancel, journal.Unknown, "panic"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := manager(t, tt.do)
				run := start(t, m, call())
				synctest.Wait()
				ctx, leave := context.WithCancel(t.Context())
				leave()
				if _, err := run.Answer(ctx); !errors.Is(err, context.Canceled) || !run.UnderWay() {
					t.Errorf("got %v", err)
				}
				tt.end(m, run)
				if got := say(t, run); !strings.Contains(got, tt.said) || run.Info().State != tt.state {
					t.Errorf("got %q, %v", got, run.Info().State)
				}
				m.Settle(time.Minute)
				if _, err := run.Recorded(); err != nil {
					t.Errorf("the record is %v", err)
				}
				if name != "panic" {
					return
				}
				again, _, err := m.Start(call())
				if got := say(t, again); err != nil || !strings.HasSuffix(got, "What it printed:\nbefore") {
					t.Errorf("got %q, %v", got, err)
				}
			})
		})
	}
}

// program takes input when its window has room.
type program struct {
	api.Program

	room chan int // bytes that it takes

	mu    sync.Mutex // serialises Write
	taken []byte
	ended bool
}

func (p *program) Write(ctx context.Context, offset int64, data []byte, end bool) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	data = data[min(int64(len(p.taken))-offset, int64(len(data))):]
	for len(data) > 0 {
		select {
		case n := <-p.room:
			n = min(n, len(data))
			p.taken, data = append(p.taken, data[:n]...), data[n:]
		case <-ctx.Done():
			return int64(len(p.taken)), context.Cause(ctx)
		}
	}
	p.ended = end
	return int64(len(p.taken)), nil
}

// Input is written as the program takes it, of two callers by the later one, and acknowledged after the end.
func TestInput(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, end := &program{room: make(chan int)}, make(chan struct{})
		m := manager(t, func(_ context.Context, w api.Watch) (api.Observation, error) {
			err := w.Begin()
			w.Program(p)
			<-end
			return api.NullObservation{}, err
		})
		run := start(t, m, call())
		write := func(offset int64, text string) (int64, error) {
			return run.WriteInput(t.Context(), actions.Input{
				Body: strings.NewReader(text), Offset: offset, End: true, Wait: time.Second, Interrupt: func() {},
			})
		}
		if next, err := write(0, "abcdef"); next != 0 || !errors.Is(err, actions.ErrNotTaken) {
			t.Errorf("got %d, %v", next, err)
		}
		first := make(chan error)
		go func() { _, err := write(0, "abcdef"); first <- err }()
		p.room <- 2
		synctest.Wait()
		go func() {
			p.room <- 4
		}()
		next, err := write(0, "abcdef")
		if next != 6 || err != nil || string(p.taken) != "abcdef" || !p.ended {
			t.Errorf("got %d, %v, %q, %v", next, err, p.taken, p.ended)
		}
		if err := <-first; !errors.Is(err, actions.ErrTakenOver) {
			t.Errorf("got %v", err)
		}
		close(end)
		_ = say(t, run)
		run, _ = m.Find("a")
		if next, err := write(3, "def"); next != 6 || err != nil {
			t.Errorf("got %d, %v", next, err)
		}
		if _, err := write(3, "defg"); !errors.Is(err, actions.ErrEnded) {
			t.Errorf("got %v", err)
		}
		broken := actions.Input{Body: io.MultiReader(strings.NewReader("d"), brokenReader{}), Offset: 3}
		if _, err := run.WriteInput(t.Context(), broken); !errors.Is(err, actions.ErrBody) {
			t.Errorf("got %v", err)
		}
	})
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A reader that follows an action gets its output from the event after the one that it knows, until the end.
func TestFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		more := make(chan struct{})
		m := manager(t, func(_ context.Context, w api.Watch) (api.Observation, error) {
			err := w.Begin()
			w.Output(api.Output{Stream: api.StreamStdout, Data: []byte("one\n")})
			<-more
			w.Output(api.Output{Stream: api.StreamStderr, Data: []byte("two\n")})
			return api.NullObservation{}, err
		})
		run := start(t, m, call())
		synctest.Wait()
		var all, later []string
		collect := func(into *[]string) func(api.Output) error {
			return func(o api.Output) error {
				*into = append(*into, o.Stream+": "+string(o.Data))
				return nil
			}
		}
		time.AfterFunc(time.Minute, func() { close(more) })
		last, err := run.Follow(t.Context(), 0, nil, collect(&all))
		if want := []string{"stdout: one\n", "stderr: two\n"}; err != nil || last != 2 || !slices.Equal(all, want) {
			t.Errorf("got %q, %d, %v", all, last, err)
		}
		if _, err := run.Follow(t.Context(), 1, nil, collect(&later)); err != nil || !slices.Equal(later, all[1:]) {
			t.Errorf("got %q, %v", later, err)
		}
		gone := errors.New("gone")
		if _, err := run.Follow(t.Context(), 0, nil, func(api.Output) error { return gone }); !errors.Is(err, gone) {
			t.Errorf("got %v", err)
		}
		out, ok := run.Output("stderr")
		if !ok || out.Total != 4 {
			t.Errorf("got %+v, %v", out, ok)
		}
		if _, ok := run.Output("x"); ok {
			t.Error("a stream without a name was found")
		}
	})
}

// The semaphore of an action is released before callers learn of its end: the next action of a caller finds room.
func TestRelease(t *testing.T) {
	t.Parallel()
	m := manager(t, func(context.Context, api.Watch) (api.Observation, error) { return api.NullObservation{}, nil })
	run, _, err := m.Start(call())
	if err != nil {
		t.Fatal(err)
	}
	m.Do(t.Context(), run, func() {
		if !run.UnderWay() {
			t.Error("the end was known before the release")
		}
	})
}
