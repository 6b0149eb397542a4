package actions_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
)

// numbered is a program with a process id.
type numbered struct {
	api.Program

	pid int
}

func (n numbered) PID() int { return n.pid }

// networked starts actions, which run until end, and returns their denials then.
func networked(t *testing.T, list []api.Request) (m *actions.Manager, end func() map[string]*api.Network) {
	t.Helper()
	over := make(chan struct{})
	m = manager(t, func(_ context.Context, w api.Watch) (api.Observation, error) {
		if err := w.Begin(); err != nil {
			return nil, err
		}
		<-over
		return api.RunObservation{Metadata: api.RunMetadata{PID: -1}}, nil
	})
	runs := map[string]*actions.Run{}
	for i, req := range list {
		c := call()
		c.ID, c.Kind, c.Request = fmt.Sprint(i), req.Action.Kind(), req
		runs[c.ID] = start(t, m, c)
		synctest.Wait()
	}
	return m, func() map[string]*api.Network {
		close(over)
		all := map[string]*api.Network{}
		for id, run := range runs {
			answer, err := run.Answer(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			o, err := api.DecodeObservation(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			if n := api.NetworkOf(o); n != nil {
				all[id] = n
			}
			recorded, err := run.Recorded() // the journal has it, too
			if err != nil || string(recorded.Body) != string(answer.Body) {
				t.Errorf("got %s, %v", recorded.Body, err)
			}
		}
		return all
	}
}

// TestDenied: a denial is of the action whose process asked, of the only action where that is not
// known, and otherwise of none.
func TestDenied(t *testing.T) {
	t.Parallel()
	run := func(session string) api.Request { return api.Request{Action: api.RunAction{}, Session: session} }
	static := api.Request{Action: api.RunAction{IsStatic: true}}
	cell := api.Request{Action: api.IPythonAction{}, Session: "b"}
	read := api.Request{Action: api.ReadAction{}}
	browse := api.Request{Action: api.BrowseInteractiveAction{}}
	for _, tc := range []struct {
		name       string
		list       []api.Request
		origin     api.Origin
		want       string // the id of the action that has the denial
		attributed bool
	}{
		{"one session of two", []api.Request{run(""), run("b")}, api.Origin{Kind: "run", Session: "b"}, "1", true},
		{"the default session", []api.Request{run("b"), run("")}, api.Origin{Kind: "run", Session: "default"}, "1", true},
		{"the oldest of a session", []api.Request{run("b"), run("b")}, api.Origin{Kind: "run", Session: "b"}, "0", true},
		{"what a session's command started", []api.Request{run("b")}, api.Origin{Kind: "run", Session: "b", Age: time.Millisecond}, "0", true},
		{"what an earlier one left", []api.Request{run("b")}, api.Origin{Kind: "run", Session: "b", Age: time.Minute}, "0", false},
		{"left, beside another session", []api.Request{run("b"), run("c")}, api.Origin{Kind: "run", Session: "b", Age: time.Minute}, "", false},
		{"a session without an action", []api.Request{run("b")}, api.Origin{Kind: "run", Session: "c"}, "", false},
		{"a static command", []api.Request{run("b"), static}, api.Origin{Kind: "run"}, "1", true},
		{"static commands", []api.Request{static, static}, api.Origin{Kind: "run"}, "", false},
		{"a cell beside the shell of its name", []api.Request{run("b"), cell}, api.Origin{Kind: "run_ipython", Session: "b"}, "1", true},
		{"a browser", []api.Request{run("b"), browse}, api.Origin{Kind: "browse"}, "1", true},
		{"a browser of two", []api.Request{browse, browse}, api.Origin{Kind: "browse"}, "", false},
		{"unknown, of one", []api.Request{read, run("b"), read}, api.Origin{}, "1", false},
		{"unknown, of two", []api.Request{run("b"), cell}, api.Origin{}, "", false},
		{"unknown, of none that can", []api.Request{read}, api.Origin{}, "", false},
		{"unknown, of none", nil, api.Origin{}, "", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, end := networked(t, tc.list)
				<-time.After(12 * time.Millisecond)
				tc.origin.Process = "curl"
				for range 2 {
					m.Denied(tc.origin, actions.Denial{Time: time.Now(), Host: "a.example", Port: 443, Reason: "no"})
				}
				want := map[string]*api.Network{}
				if tc.want != "" {
					want[tc.want] = &api.Network{Attributed: tc.attributed, Denied: []api.Denied{{Host: "a.example", Port: 443, Reason: "no", Count: 2, FirstMS: 12, Process: "curl"}}}
				}
				if got := end(); !reflect.DeepEqual(got, want) {
					t.Errorf("got %+v", got)
				}
				m.Denied(tc.origin, actions.Denial{}) // nothing is under way
			})
		})
	}
}

// TestDeniedProgram: a program is known by its process id, also where its action learns that later.
func TestDeniedProgram(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		over := make(chan struct{})
		pids := make(chan int, 2)
		m := manager(t, func(_ context.Context, w api.Watch) (api.Observation, error) {
			pid, err := <-pids, w.Begin()
			<-time.After(time.Millisecond)
			w.Program(numbered{pid: pid})
			<-over
			return api.ExecObservation{}, err
		})
		runs := map[int]*actions.Run{}
		for _, pid := range []int{7, 8} {
			pids <- pid
			c := call()
			c.ID = fmt.Sprint(pid)
			runs[pid] = start(t, m, c)
			synctest.Wait()
		}
		m.Denied(api.Origin{Kind: "exec", PID: 8}, actions.Denial{Host: "a.example", Port: 1, Reason: "no"})
		m.Denied(api.Origin{Kind: "exec", PID: 9}, actions.Denial{Host: "b.example", Port: 1, Reason: "no"})
		close(over)
		for pid, run := range runs {
			answer, err := run.Answer(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			o, err := api.DecodeObservation(answer.Body)
			if n := api.NetworkOf(o); err != nil || (n != nil) != (pid == 8) || n != nil && (len(n.Denied) != 1 || n.Denied[0].Host != "a.example" || !n.Attributed) {
				t.Errorf("%d: got %+v, %v", pid, n, err)
			}
		}
	})
}

// TestDeniedAtEnd: denials that are known at the end of an action alone are in its observation, and an
// action that cannot use the network does not ask for any.
func TestDeniedAtEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, err := journal.Open(journal.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var m *actions.Manager
		asked := 0
		m = actions.New(actions.Config{
			Journal: j, Memory: actions.NewMemory(64 << 20), Ended: func(context.Context, *actions.Call, error, time.Duration) {},
			Executor: fake{func(_ context.Context, w api.Watch) (api.Observation, error) {
				return api.RunObservation{Metadata: api.RunMetadata{PID: -1}}, w.Begin()
			}},
			Collect: func(begun time.Time) {
				asked++
				if !begun.Equal(time.Now()) {
					t.Errorf("the action began at %v", begun)
				}
				m.Denied(api.Origin{Kind: "run", Session: "default", Process: "curl"}, actions.Denial{Time: time.Now(), Host: "a.example", Port: 443, Reason: "no"})
			},
		})
		for i, req := range []api.Request{{Action: api.RunAction{}}, {Action: api.ReadAction{}}} {
			c := call()
			c.ID, c.Kind, c.Request = fmt.Sprint(i), req.Action.Kind(), req
			answer, err := start(t, m, c).Answer(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			o, err := api.DecodeObservation(answer.Body)
			if n := api.NetworkOf(o); err != nil || (n != nil) != (i == 0) || n != nil && (n.Denied[0].Process != "curl" || !n.Attributed) {
				t.Errorf("%s: got %+v, %v", c.Kind, n, err)
			}
		}
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
}

// TestAttackDenials: an agent that asks for thousands of hosts makes an observation no longer, and
// no denial is lost from its counts.
func TestAttackDenials(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, end := networked(t, []api.Request{{Action: api.RunAction{}}})
		for n := range 10_000 {
			m.Denied(api.Origin{}, actions.Denial{Time: time.Now(), Host: fmt.Sprintf("h%d.example", n), Port: 1, Reason: "no"})
		}
		for range 3 {
			m.Denied(api.Origin{}, actions.Denial{Time: time.Now(), Host: "h100.example", Port: 1, Reason: "no"})
		}
		n := end()["0"]
		if n == nil || len(n.Denied) != 20 || n.Denied[0].Host != "h100.example" || n.Denied[0].Count != 4 {
			t.Fatalf("got %+v", n)
		}
		sum := n.More
		for _, d := range n.Denied {
			sum += d.Count
		}
		if sum != 10_003 {
			t.Errorf("got %d denials", sum)
		}
	})
}
