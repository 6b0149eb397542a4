package notebook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/actiond/actiond/executor/internal/lock"
	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/tail"
)

// Frozen is an idle kernel on its way to another program in the same process, which can be
// written as JSON. Its descriptors stay open meanwhile, and the kernel a child.
type Frozen struct {
	PID                             int
	Python, Dir, Key, Cwd, InitFail string
	Link, Errors                    int
}

// freezeTime bounds how long the end of a kernel is waited for.
const freezeTime = 2 * time.Second

// Freeze returns the state of the kernels in which no cell runs, by session, so that
// another program of this process can go on with them by [Notebook.Restore]. keep is called for
// each open file that must stay open, and returns its descriptor. Until resume none is waited
// for that ends. No cell may begin meanwhile.
func (n *Notebook) Freeze(ctx context.Context, keep func(*os.File) (int, error)) (all map[string]*Frozen, resume func()) {
	ctx, cancel := context.WithTimeout(ctx, freezeTime)
	defer cancel()
	all = map[string]*Frozen{}
	var frozen []*kernel
	for _, s := range n.kernels.List() {
		if !s.Live || s.Busy {
			continue
		}
		if f := s.Value.freeze(ctx, keep); f != nil {
			all[s.Name] = f
			frozen = append(frozen, s.Value)
		}
	}
	return all, func() {
		for _, k := range frozen {
			k.ending.Unlock()
		}
	}
}

// freeze returns the state of a kernel; nil where it has ended.
func (k *kernel) freeze(ctx context.Context, keep func(*os.File) (int, error)) *Frozen {
	if lock.Before(ctx, &k.ending) != nil {
		return nil
	}
	f := &Frozen{PID: k.process.Pid, Python: k.python, Dir: k.dir, Key: string(k.key), Cwd: k.cwd, InitFail: k.initFailed}
	var err, failed error
	f.Link, err = keep(k.link)
	f.Errors, failed = keep(k.errors)
	if k.over() || err != nil || failed != nil {
		k.ending.Unlock()
		return nil
	}
	return f
}

// Restore takes over the kernel of a session that does not exist. It is connected to by the
// next cell, which is told where that fails.
func (n *Notebook) Restore(session string, f *Frozen) error {
	k := &kernel{
		cfg: &n.cfg, python: f.Python, dir: f.Dir, signer: signer{[]byte(f.Key)}, cwd: f.Cwd, initFailed: f.InitFail,
		tree: proc.NewTree(f.PID), link: os.NewFile(uintptr(f.Link), "link"), errors: os.NewFile(uintptr(f.Errors), "errors"),
		complaint: tail.New(maxComplaint), dead: make(chan struct{}), gone: make(chan struct{}),
	}
	var err error
	if k.process, err = os.FindProcess(f.PID); err == nil && (k.link == nil || k.errors == nil) {
		err = errors.New("a descriptor did not come")
	}
	if err != nil {
		return fmt.Errorf("taking over the kernel %d: %w", f.PID, err)
	}
	k.attend()
	n.kernels.Adopt(session, k)
	return nil
}

// reconnect connects to a kernel that was taken over.
func (k *kernel) reconnect() error {
	k.ending.Lock() // before that the readers are not waited for
	over := k.over()
	ready := make(chan error, 1)
	if !over {
		k.readers.Go(func() { ready <- k.attach() })
	}
	k.ending.Unlock()
	if over {
		return errEnded
	}
	limit := time.NewTimer(beatTime)
	defer limit.Stop()
	select {
	case err := <-ready:
		return err
	case <-k.gone:
		return errEnded
	case <-limit.C:
		return os.ErrDeadlineExceeded
	}
}
