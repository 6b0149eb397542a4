package executor_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/contract"
	"github.com/actiond/actiond/executor"
)

// withChanges returns what carries out actions and says what they changed, without HTTP.
func withChanges(t *testing.T, e *executor.Executor) contract.DoWithChanges {
	t.Helper()
	j, err := journal.Open(journal.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	m := actions.New(actions.Config{
		Journal: j, Executor: e, Workspace: e.Workspace(), Memory: actions.NewMemory(64 << 20),
		Ended: func(context.Context, *actions.Call, error, time.Duration) {},
	})
	var n atomic.Int64
	return func(ctx context.Context, req api.Request) (api.Observation, *api.Changes, error) {
		call := &actions.Call{ID: fmt.Sprint(n.Add(1)), Kind: req.Action.Kind(), Request: req, Form: "action", Encode: api.EncodeObservation}
		run, _, err := m.Start(call)
		if err != nil {
			return nil, nil, err
		}
		defer run.Leave()
		m.Do(ctx, run, func() {})
		answer, err := run.Answer(ctx)
		if err != nil {
			return nil, nil, err
		}
		o, err := api.DecodeObservation(answer.Body)
		return o, run.Changes(), err
	}
}

func TestContractOfChanges(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]executor.WorkspaceConfig{"watched": {}, "listed": {MaxWatches: -1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg.Dir = filepath.Join(dir, name)
			put(t, dir, filepath.Join(name, "old"), "text")
			e, _ := start(t, executor.Config{Workspace: cfg})
			contract.Changes(t, withChanges(t, e), cfg.Dir)
		})
	}
}
