package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/filelock"
	"github.com/actiond/actiond/sandbox"
)

const (
	hostFile    = "egress/conf/host.json"
	rootsSuffix = ".pem"
)

func confName(id string) string { return path.Join("egress/conf", id+".json") }

// egressRun is the directory with the socket of a sandbox, which is mounted into it read-only.
func (s *stateDir) egressRun(id string) string { return filepath.Join(s.path, "egress", "run", id) }

// saveConf writes the policy of a sandbox, before it the roots for its secrets, which stay where they are
// nil, and makes the directory of its socket.
func (s *stateDir) saveConf(id string, c egress.Conf, roots []byte) error {
	for _, dir := range []string{"egress", "egress/conf", "egress/run"} {
		if err := s.mkdir(dir); err != nil {
			return fmt.Errorf("making the directory %s: %w", dir, err)
		}
	}
	data, err := c.Encode()
	if err != nil {
		return fmt.Errorf("network policy of sandbox %s: %w", id, err)
	}
	if roots != nil {
		if err := s.write(path.Join("egress/conf", id+rootsSuffix), roots); err != nil {
			return err
		}
	}
	if err := s.write(confName(id), data); err != nil {
		return err
	}
	// The server of the sandbox may be another user than the proxy.
	if err := s.root.Mkdir(path.Join("egress/run", id), 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the directory of the egress socket: %w", err)
	}
	return nil
}

// loadConf returns the policy of a sandbox; it fails with fs.ErrNotExist.
func (s *stateDir) loadConf(id string) (egress.Conf, error) {
	data, err := s.root.ReadFile(confName(id))
	if err != nil {
		return egress.Conf{}, err
	}
	conf, err := egress.ParseConf(data)
	if err != nil {
		return conf, fmt.Errorf("network policy of sandbox %s: %w", id, err)
	}
	return conf, nil
}

func (s *stateDir) hasConf(id string) (bool, error) {
	_, err := s.root.Lstat(confName(id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// removeConf removes the socket of a sandbox, and then its policy. Its lock is held.
func (s *stateDir) removeConf(id string) error {
	err := s.root.RemoveAll(path.Join("egress/run", id))
	if err == nil {
		err = s.root.RemoveAll(confName(id))
	}
	if err == nil {
		err = s.removeLeft(id, 0)
	}
	if err != nil {
		return fmt.Errorf("removing the network policy of sandbox %s: %w", id, err)
	}
	return nil
}

// removeLeft removes files of sandboxes whose ids have the prefix, of an age: those with secrets that a
// controller which died has left half written, and roots without a policy.
func (s *stateDir) removeLeft(prefix string, age time.Duration) error {
	entries, err := fs.ReadDir(s.root.FS(), "egress/conf")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		left := strings.HasSuffix(e.Name(), tempSuffix)
		if id, ok := strings.CutSuffix(e.Name(), rootsSuffix); ok && sandbox.IsID(id) {
			has, err := s.hasConf(id)
			left = err == nil && !has
		}
		if info, err := e.Info(); left && err == nil && strings.HasPrefix(e.Name(), prefix) && time.Since(info.ModTime()) >= age {
			errs = append(errs, s.root.Remove(path.Join("egress/conf", e.Name())))
		}
	}
	return errors.Join(errs...)
}

// confs returns the ids of the sandboxes that have a policy.
func (s *stateDir) confs() (ids []string, err error) {
	entries, err := fs.ReadDir(s.root.FS(), "egress/conf")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listing the network policies: %w", err)
	}
	for _, e := range entries {
		if id, ok := strings.CutSuffix(e.Name(), ".json"); ok && sandbox.IsID(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// confsChanged is when a policy was last added, changed or removed; zero for never.
func (s *stateDir) confsChanged() time.Time {
	info, err := s.root.Stat("egress/conf")
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// saveHost writes the addresses that no sandbox reaches, where they have changed.
func (s *stateDir) saveHost(own []netip.Addr) error {
	data, err := json.Marshal(map[string][]netip.Addr{"addresses": own})
	if err != nil {
		return err
	}
	if before, err := s.root.ReadFile(hostFile); err == nil && bytes.Equal(before, data) {
		return nil
	}
	return s.write(hostFile, data)
}

// pruneConf reports whether a policy belongs to no sandbox, and removes such a one.
func (h *Host) pruneConf(ctx context.Context, id string, dryRun bool) (orphan bool, err error) {
	unlock, err := h.state.tryLock(id)
	if errors.Is(err, filelock.ErrLocked) {
		return false, nil // it is being created or removed
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	if _, err := h.state.root.Lstat(path.Join("sandboxes", id)); !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	found, err := h.list(ctx, "looking for the container of sandbox "+id, labelController+"="+h.controller, labelID+"="+id)
	if len(found) > 0 || err != nil {
		return false, err
	}
	if dryRun {
		return true, nil
	}
	return true, h.disconnect(ctx, id)
}
