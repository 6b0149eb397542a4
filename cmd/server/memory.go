package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/memfile"
	"github.com/actiond/actiond/server"
)

// remembered is the state that a server leaves to the next one after a crash.
type remembered struct {
	At     time.Duration  // when it was written, on the kernel's monotonic clock
	User   *identity.User // that commands run as
	Server server.Snapshot
	Env    map[string]string // that came with the claim
}

// recall opens the memory that an init gave to this server, and reads the state of the server
// before it; memory is nil without an init, and last is nil for the first server.
func recall(opts *options) (memory *memfile.File, last *remembered, err error) {
	if opts.memoryFD == 0 {
		return nil, nil, nil
	}
	if memory, err = memfile.Open(opts.memoryFD); err != nil || !memory.Written() {
		return memory, nil, err
	}
	last = &remembered{}
	if err := memory.Load(last); err != nil {
		return nil, nil, err
	}
	if last.Server.TTL > 0 { // 0 means no limit
		now, err := sinceBoot()
		if err != nil {
			return nil, nil, err
		}
		last.Server.TTL = max(last.Server.TTL-(now-last.At), 1)
	}
	return memory, last, nil
}

// remember writes the state that recall reads.
func remember(memory *memfile.File, f server.Snapshot, user *identity.User, env map[string]string) error {
	now, err := sinceBoot()
	if err != nil {
		return err
	}
	return memory.Store(remembered{now, user, f, env})
}

// sinceBoot is a clock that all processes share and that cannot be set.
func sinceBoot() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("reading the clock: %w", err)
	}
	return time.Duration(now.Nano()), nil
}
