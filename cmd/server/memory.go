package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/internal/memfile"
	"github.com/actiond/actiond/server"
)

// remembered is the state that a server leaves to the next one after a crash or an upgrade. The
// program that reads it may be older than the one that wrote it: members
// are only added, and a program works without those that it does not know.
type remembered struct {
	At     time.Duration  // when it was written, on the kernel's monotonic clock
	User   *identity.User // that commands run as
	Server server.Snapshot
	Env    map[string]string // that came with the claim
}

// recall opens the memory that an init or an upgrade gave to this server, and reads the state
// of the server before it; last is nil for the first one.
func recall(opts *options, p *passed) (memory *memfile.File, last *remembered, err error) {
	switch {
	case p != nil:
		memory = p.memory
	case opts.memoryFD == 0:
		return nil, nil, nil
	default:
		if memory, err = memfile.Open(opts.memoryFD); err != nil {
			return nil, nil, err
		}
	}
	if p == nil && !memory.Written() {
		return memory, nil, nil
	}
	last, err = load(memory)
	return memory, last, err
}

// load reads the state that a server wrote to its memory.
func load(memory *memfile.File) (last *remembered, err error) {
	last = &remembered{}
	if err := memory.Load(last); err != nil {
		return nil, err
	}
	if last.Server.TTL > 0 { // 0 means no limit
		now, err := sinceBoot()
		if err != nil {
			return nil, err
		}
		last.Server.TTL = max(last.Server.TTL-(now-last.At), 1)
	}
	return last, nil
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
