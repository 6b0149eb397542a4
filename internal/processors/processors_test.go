package processors

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// trial is a Governor of a process whose processor time the test says.
type trial struct {
	*Governor
	t       *testing.T
	mu      sync.Mutex
	changes []string
	used    time.Duration
}

func newTrial(t *testing.T) *trial {
	t.Helper()
	tr := &trial{t: t}
	tr.Governor = newGovernor(func(one bool) {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		name := "all"
		if one {
			name = "one"
		}
		tr.changes = append(tr.changes, name)
	}, func() time.Duration {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		return tr.used
	})
	tr.request(calm/2, 0.5) // the first shell starts
	tr.want("one")
	tr.request(2*calm, 0)
	time.Sleep(2 * calm)
	tr.want("one", "all", "one")
	time.Sleep(settled)
	tr.forget("one")
	return tr
}

// request makes a request that takes so long, on so many processors.
func (tr *trial) request(d time.Duration, load float64) {
	tr.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		for end := time.Now().Add(d); time.Now().Before(end); {
			time.Sleep(time.Millisecond)
			tr.mu.Lock()
			tr.used += time.Duration(load * float64(time.Millisecond))
			tr.mu.Unlock()
		}
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
}

// forget has the changes so far be these.
func (tr *trial) forget(but ...string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.changes = but
}

func (tr *trial) seen() []string {
	synctest.Wait()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return slices.Clone(tr.changes)
}

// want checks the changes of the number of processors so far.
func (tr *trial) want(changes ...string) {
	tr.t.Helper()
	if got := tr.seen(); !slices.Equal(got, changes) {
		tr.t.Errorf("got %v, want %v", got, changes)
	}
}

// Short requests leave the runtime its one processor, also many in a row, and several at a time.
func TestShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrial(t)
		for range 1000 {
			tr.request(2*time.Millisecond, 0.5)
		}
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 100 {
					tr.request(5*time.Millisecond, 0.1)
				}
			})
		}
		group.Wait()
		tr.want("one")
	})
}

// A long request has all processors while it runs, and so has whatever runs beside it.
func TestLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrial(t)
		over := make(chan struct{})
		go func() {
			tr.request(5*time.Second, 0)
			close(over)
		}()
		time.Sleep(2 * short)
		tr.want("one", "all")
		for range 1000 {
			tr.request(time.Millisecond, 0.5)
		}
		tr.want("one", "all")
		<-over
		time.Sleep(calm / 2)
		tr.want("one", "all")
		time.Sleep(calm)
		tr.want("one", "all", "one")
	})
}

// What uses up one processor gets more, in short requests or beside them, until it ends.
func TestBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrial(t)
		for range 10 {
			tr.request(2*time.Millisecond, 1)
		}
		tr.want("one", "all")
		for range 1000 {
			tr.request(2*time.Millisecond, 1.5)
		}
		tr.want("one", "all")
		for range 100 {
			tr.request(2*time.Millisecond, 0.8)
		}
		tr.want("one", "all", "one")
	})
}

// Where one processor is never enough for long, it is tried less and less often, and again as often once it was enough.
func TestRestless(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrial(t)
		count := func(work, rest time.Duration) (tries int) {
			tr.forget()
			for begun := time.Now(); time.Since(begun) < time.Minute; {
				tr.request(work, 0)
				time.Sleep(rest)
			}
			return len(tr.seen()) / 2
		}
		if tries := count(50*time.Millisecond, 150*time.Millisecond); tries < 5 || tries > 20 {
			t.Errorf("long requests at short distances: tried %d times in a minute, want about 12", tries)
		}
		time.Sleep(maxCalm + 2*settled)
		if tries := count(50*time.Millisecond, 2*time.Second); tries < 25 {
			t.Errorf("long requests at long distances: tried %d times in a minute, want 29", tries)
		}
	})
}

// An idle process has no timer.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrial(t)
		tr.request(time.Second, 2)
		tr.request(time.Millisecond, 0)
		time.Sleep(time.Minute)
		tr.want("one", "all", "one")
		tr.mu.Lock()
		tr.used = time.Hour
		tr.mu.Unlock()
		time.Sleep(time.Hour)
		tr.want("one", "all", "one")
		if tr.waits {
			t.Error("a look is to come")
		}
	})
}

// A person's number of processors stays, and a nil Governor has no effect.
func TestGiven(t *testing.T) {
	t.Setenv("GOMAXPROCS", "3")
	g := New()
	if g != nil {
		t.Fatal("there is a Governor")
	}
	w := httptest.NewRecorder()
	g.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	if w.Code != http.StatusNotFound {
		t.Errorf("got %d", w.Code)
	}
}

// The runtime's number follows, and the kernel says how much time the process used.
func TestRuntime(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	use(false)
	all := runtime.GOMAXPROCS(0)
	use(true)
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("got %d, want 1", n)
	}
	use(false)
	if n := runtime.GOMAXPROCS(0); n != all {
		t.Errorf("got %d, want %d", n, all)
	}
	before := spent()
	for n := 0; spent() == before; n++ {
		_ = n
	}
}

// A long request that ends while the number changes brings the next look all the same.
func TestEndDuringChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := newTrial(t)
		use := tr.use
		tr.use = func(one bool) {
			if use(one); !one {
				tr.Governor.mu.Lock()
				request := tr.requests.Front()
				tr.Governor.mu.Unlock()
				tr.end(request)
			}
		}
		tr.begin()
		time.Sleep(short)
		tr.want("one", "all")
		time.Sleep(calm)
		tr.want("one", "all", "one")
	})
}
