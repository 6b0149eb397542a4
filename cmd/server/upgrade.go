package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/internal/handover"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/memfile"
	"github.com/actiond/actiond/server/files"
)

// passed has the descriptors that the program before in this process left to this one.
type passed struct {
	memory   *memfile.File
	listener net.Listener // nil for a check
}

// takePassed reads the arguments of a program that was started by an upgrade, and returns those of
// the program before. p is nil at any other start. Without a listener this process only checks
// whether it could go on.
func takePassed(args []string) (rest []string, p *passed, err error) {
	if len(args) == 0 || args[0] != handover.Command {
		return args, nil, nil
	}
	count := map[string]int{handover.Check: 1, handover.Resume: 2}
	var descriptors []int
	if len(args) > 1 && len(args) >= 2+count[args[1]] {
		for _, arg := range args[2 : 2+count[args[1]]] {
			fd, err := strconv.Atoi(arg)
			if err != nil {
				return nil, nil, usagef("%s is for the server itself", handover.Command)
			}
			descriptors = append(descriptors, fd)
		}
	}
	if len(descriptors) == 0 {
		return nil, nil, usagef("%s is for the server itself", handover.Command)
	}
	p = &passed{}
	if p.memory, err = memfile.Open(descriptors[0]); err != nil {
		return nil, nil, err
	}
	if len(descriptors) > 1 {
		p.listener, err = openListener(descriptors[1])
	}
	return args[2+len(descriptors):], p, err
}

func openListener(fd int) (net.Listener, error) {
	file := os.NewFile(uintptr(fd), "listener")
	if file == nil {
		return nil, errors.New("the listener did not come")
	}
	defer func() { _ = file.Close() }()
	l, err := net.FileListener(file)
	if socket, ok := l.(*net.UnixListener); ok {
		socket.SetUnlinkOnClose(true)
	}
	return l, err
}

// check returns an error where this program could not go on with the memory or with the journal of
// the program before, which goes on meanwhile.
func (p *passed) check(opts *options, env []string) error {
	if _, err := load(p.memory); err != nil {
		return err
	}
	if dir := journalDir(opts, lookup(env)); dir != "" {
		return journal.Check(dir)
	}
	return nil
}

// upgrader is the server's.
type upgrader struct {
	args     []string // of this program, without those of an upgrade
	env      []string
	dir      string
	exec     *executor.Executor
	listener net.Listener
	program  *handover.Program // nil before one was received
	memory   *memfile.File     // nil where there is neither an init nor an upgrade
}

// noUpgrade says why this server cannot be upgraded in place, "" where it can.
func noUpgrade(opts *options, owner *files.Owner) string {
	switch {
	case owner == nil:
		return "it runs as the same user as the commands, which could change the program on its way"
	case opts.stateDir == "":
		return "it has no --state-dir to put the program into"
	}
	return ""
}

// Receive implements [server.Upgrader].
func (u *upgrader) Receive(ctx context.Context, r io.Reader) (version string, err error) {
	p, err := handover.Receive(ctx, u.dir, r)
	if err != nil {
		return "", err
	}
	if err := p.Accepts(ctx, u.memory.OSFile(), u.args, u.env); err != nil {
		p.Close()
		return "", err
	}
	u.program = p
	return p.Version, nil
}

// Forget implements [server.Upgrader].
func (u *upgrader) Forget() { u.program.Close() }

// Running implements [server.Upgrader].
func (u *upgrader) Running() []string { return u.exec.Running() }

// End implements [server.Upgrader].
func (u *upgrader) End(ctx context.Context) []string { return u.exec.EndAll(ctx) }

// Execute implements [server.Upgrader].
func (u *upgrader) Execute() error {
	var failed error
	err := httpserver.Descriptor(u.listener, func(fd int) error {
		failed = u.program.Exec(u.args, int(u.memory.OSFile().Fd()), fd)
		return nil
	})
	return cmp.Or(failed, err)
}
