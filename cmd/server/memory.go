package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/handover"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/server"
)

// remembered is what a server leaves to the one that its init starts after a crash. The
// program that reads it may be older than the one that wrote it, after an upgrade: members
// are only added, and a program works without those that it does not know.
type remembered struct {
	At     time.Duration  // when it was written, on the kernel's monotonic clock
	User   *identity.User // that commands run as
	Server server.Frozen
	Env    map[string]string // that came with the claim
}

// recall opens the memory that an init gave to this server, and reads what the server
// before it left; last is nil for the first one, and after an upgrade.
func recall(opts *options, upgraded bool) (memory *handover.Memory, last *remembered, err error) {
	if opts.memoryFD == 0 {
		return nil, nil, nil
	}
	memory, err = handover.OpenMemory(opts.memoryFD)
	if err != nil || upgraded || !memory.Written() {
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

// remember writes what recall reads.
func remember(memory *handover.Memory, f server.Frozen, user *identity.User, env map[string]string) error {
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
