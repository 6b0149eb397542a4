package changes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/hostpath"
)

const (
	planName  = "restore"
	planMagic = "actiondr\x01"
	// maxPlan bounds a plan that is read: more than the largest tree has.
	maxPlan = 1 << 30
)

// inStateDir calls work with the state directory, if there is one.
func (t *Tracker) inStateDir(work func(root *os.Root) error) error {
	if t.cfg.StateDir == "" {
		return nil
	}
	root, err := hostpath.OpenPrivate(t.cfg.StateDir)
	if err != nil {
		return fmt.Errorf("opening the state directory %q: %w", t.cfg.StateDir, err)
	}
	defer func() { _ = root.Close() }()
	return work(root)
}

// writePlan tells the next process what a restore that this one began is to end with.
func (t *Tracker) writePlan(target *node) error {
	return t.inStateDir(func(root *os.Root) error {
		plan := appendText([]byte(planMagic), t.cfg.Root)
		plan = (&State{root: target}).Encode(plan)
		if err := replaceOwn(root, planName, plan); err != nil {
			return fmt.Errorf("writing the plan of the restore: %w", errors.Join(err, root.RemoveAll(planName+".tmp")))
		}
		return nil
	})
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Unfinished reports whether a killed process left a restore in its state directory, so that the tree is not in its final
// state.
func Unfinished(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, planName))
	return err == nil
}

// readPlan returns the plan of a restore that a killed process began; nil if there is none for this root.
func (t *Tracker) readPlan() (target *State, err error) {
	err = t.inStateDir(func(root *os.Root) error {
		f, err := openOwn(root, planName, os.O_RDONLY)
		switch {
		case errors.Is(err, errReplaced):
			return root.RemoveAll(planName)
		case err != nil:
			return ignoreMissing(err)
		}
		data, err := io.ReadAll(io.LimitReader(f, maxPlan))
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("reading the plan of a restore: %w", err)
		}
		plan, of := parsePlan(data)
		if plan == nil || of != t.cfg.Root { // damaged by a power cut, or of another tree
			return root.Remove(planName)
		}
		target = plan
		return nil
	})
	return target, err
}

func parsePlan(data []byte) (target *State, root string) {
	rest, ok := bytes.CutPrefix(data, []byte(planMagic))
	if !ok {
		return nil, ""
	}
	d := decoder{rest: rest}
	root = d.text(unix.PathMax)
	target, err := DecodeState(d.rest)
	if d.bad || err != nil {
		return nil, ""
	}
	return target, root
}

func (t *Tracker) removePlan() error {
	return t.inStateDir(func(root *os.Root) error { return ignoreMissing(root.Remove(planName)) })
}
