package proc

import "sync"

// Tree is a process that was started, with all that it started. Signals are sent
// to numbers, and that of a process may be another's as soon as it was waited for:
// this keeps them apart. Its methods may be called concurrently.
type Tree struct {
	root int

	mu    sync.Mutex
	ended bool
}

// NewTree returns the tree of a process that was not yet waited for.
func NewTree(root int) *Tree { return &Tree{root: root} }

// Await returns when the root has ended and all that is left of the tree was
// killed. The caller then waits for the root as for any process, and not before.
func (t *Tree) Await() {
	// Before it is reaped, its id is not reused, and the processes it started can be found.
	AwaitExit(t.root)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	KillTree(t.root)
}

// AwaitRoot is Await, but the rest of the tree lives on.
func (t *Tree) AwaitRoot() {
	AwaitExit(t.root)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
}

// Do lets act do something to the root, unless Await or AwaitRoot saw its end.
func (t *Tree) Do(act func(root int)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		act(t.root)
	}
}

// Kill is Do of the function of that name.
func (t *Tree) Kill() { t.Do(KillTree) }
