package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
	"github.com/actiond/actiond/executor/journal"
	"github.com/actiond/actiond/internal/handover"
	"github.com/actiond/actiond/internal/httpserver"
	"github.com/actiond/actiond/internal/identity"
	"github.com/actiond/actiond/server"
)

// documentFormat is the format of a document that is written, and oldestFormat the oldest that a
// program goes on with.
const (
	documentFormat = 3 // which has actions and programs
	oldestFormat   = 2
)

// document is what a server hands over to the program that takes its place.
type document struct {
	Format           int // the first: takeOver needs it where the rest cannot be read
	Listener, Answer int // descriptors; Answer is /dev/null where no client waits
	Lock             int // of the journal
	Previous         string
	Ended            []string
	Actions          []string       // that ran
	User             *identity.User // that commands run as
	Server           server.Frozen
	Executor         *executor.Frozen
}

// takeOver reads the arguments of a program that takes the place of another one. It returns those of
// the other one; state is nil where there was none, and check says that only an answer is wanted.
func takeOver(args []string) (rest []string, state *document, check bool, err error) {
	if len(args) < 3 || args[0] != handover.Command {
		return args, nil, false, nil
	}
	fd, err := strconv.Atoi(args[2])
	if err != nil || args[1] != handover.Check && args[1] != handover.Resume {
		return nil, nil, false, usagef("%s is for the server itself", handover.Command)
	}
	state = &document{}
	err = handover.Read(fd, state)
	if (state.Format < oldestFormat || state.Format > documentFormat) && (err == nil || state.Format != 0) {
		return nil, nil, false, fmt.Errorf("the state has format %d, and this server goes on with %d to %d", state.Format, oldestFormat, documentFormat)
	}
	if err == nil && state.Executor == nil {
		err = errors.New("the state of the sessions is missing")
	}
	if err == nil {
		err = state.Server.Check()
	}
	if err != nil {
		return nil, nil, false, err
	}
	return args[3:], state, args[1] == handover.Check, nil
}

// upgrader is the server's.
type upgrader struct {
	args     []string // of this program, without those of an upgrade
	env      []string
	dir      string
	user     *identity.User
	exec     *executor.Executor
	actions  *journal.Journal
	listener net.Listener
	signals  chan os.Signal
	program  *handover.Program // nil before one was received
	memory   *handover.Memory  // nil where no init starts a crashed server again
}

// noUpgrade says why this server cannot be upgraded in place, "" where it can.
func noUpgrade(opts *options, owner *server.Owner) string {
	switch {
	case owner == nil:
		return "it runs as the same user as the commands, which could change the program and the state on their way"
	case opts.stateDir == "":
		return "it has no --state-dir to put the program into"
	}
	return ""
}

// Receive implements [server.Upgrader].
func (u *upgrader) Receive(ctx context.Context, r io.Reader) error {
	p, err := handover.Receive(ctx, u.dir, r)
	if err != nil {
		return err
	}
	if u.program != nil {
		u.program.Close()
	}
	u.program = p
	return nil
}

// Received implements [server.Upgrader].
func (u *upgrader) Received() bool { return u.program != nil }

// Movable implements [server.Upgrader].
func (u *upgrader) Movable() map[string]bool { return u.exec.Movable() }

// Unmovable implements [server.Upgrader].
func (u *upgrader) Unmovable() []string { return u.exec.Unmovable() }

// HandOver implements [server.Upgrader].
func (u *upgrader) HandOver(ctx context.Context, h server.Handover) error {
	var descriptors []int
	keep := func(fd int) int {
		descriptors = append(descriptors, fd)
		return fd
	}
	answer, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Close() }()
	d := document{Format: documentFormat, Previous: version(), User: u.user, Server: h.Server, Answer: keep(int(answer.Fd()))}
	if u.memory != nil { // under its number, which is among the arguments
		keep(int(u.memory.File().Fd()))
	}
	d.Lock = keep(int(u.actions.Lock().Fd())) // without a state directory there is no upgrade
	if err := httpserver.Descriptor(u.listener, func(fd int) error { d.Listener = keep(fd); return nil }); err != nil {
		return err
	}
	state, ended, end, resume := u.exec.Freeze(ctx, func(f *os.File) (fd int, err error) {
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(n uintptr) { fd = keep(int(n)) })
		}
		return fd, err
	})
	defer resume()
	movable := map[string]bool{}
	for id := range state.Actions {
		movable[id] = true
	}
	on, others, requests, err := h.Actions(movable)
	if err != nil {
		return err
	}
	if left := slices.Concat(ended, others, requests); len(left) > 0 && !h.Force {
		return &server.UnsettledError{What: left}
	}
	d.Executor, d.Server.Actions, d.Actions = state, on, others
	d.Ended = slices.Concat(endedTexts(ended, state), u.exec.Unmovable(), requests)
	file, err := handover.Write(&d)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if err := u.program.Accepts(ctx, file, u.args, u.env); err != nil {
		if unfit, ok := errors.AsType[*handover.UnfitError](err); ok {
			return &api.Error{Status: 422, Detail: "This server goes on as it was: " + unfit.Reason}
		}
		return err
	}
	if h.Conn != nil {
		conn, err := h.Conn()
		if err != nil {
			return err
		}
		err = httpserver.Descriptor(conn, func(fd int) error { return unix.Dup3(fd, d.Answer, unix.O_CLOEXEC) })
		if err != nil {
			return err
		}
	}
	end()
	u.exec.EndOthers(state)
	h.Settle(context.WithoutCancel(ctx)) // the next program answers the client
	signal.Ignore(syscall.SIGUSR2)       // also in the next program, until it takes it
	defer signal.Notify(u.signals, syscall.SIGUSR2)
	return u.program.Exec(file, u.args, descriptors)
}

// endedTexts names what an upgrade ends.
func endedTexts(ended []string, f *executor.Frozen) []string {
	list := slices.Clone(ended)
	for name := range f.Kernels {
		list = append(list, fmt.Sprintf("the kernel of session %q", name))
	}
	if len(f.Browser) > 0 {
		list = append(list, "the browser")
	}
	for _, s := range f.MCP {
		list = append(list, fmt.Sprintf("MCP server %q", s.Name))
	}
	slices.Sort(list)
	return list
}

// finish answers the client that asked for the upgrade.
func (d *document) finish(actions *journal.Journal, logger *slog.Logger) {
	answer := api.Upgraded{Version: version(), Previous: d.Previous, Sessions: len(d.Executor.Sessions), Ended: d.Ended, Unknown: []string{}}
	for _, id := range d.Actions {
		if a, err := actions.Lookup(id); err == nil && a != nil && a.Info().State == journal.Unknown {
			answer.Unknown = append(answer.Unknown, id)
		}
	}
	if answer.Ended == nil {
		answer.Ended = []string{}
	}
	logger.Info("upgraded", slog.String("previous", d.Previous), slog.Int("sessions", answer.Sessions), slog.Any("ended", answer.Ended), slog.Any("unknown", answer.Unknown))
	file := os.NewFile(uintptr(d.Answer), "client")
	defer func() { _ = file.Close() }()
	conn, err := net.FileConn(file)
	if err != nil {
		return // no client waits
	}
	defer func() { _ = conn.Close() }()
	if body, err := api.Encode(answer); err == nil {
		_ = server.WriteAnswer(conn, 200, body) // the client may have left
	}
}

// listener returns the listener that came with the document.
func (d *document) listener() (net.Listener, error) {
	file := os.NewFile(uintptr(d.Listener), "listener")
	defer func() { _ = file.Close() }()
	l, err := net.FileListener(file)
	if socket, ok := l.(*net.UnixListener); ok {
		socket.SetUnlinkOnClose(true)
	}
	return l, err
}

// onSignals upgrades at each SIGUSR2 to the program that was received; stop ends that.
func (u *upgrader) onSignals(ctx context.Context, srv *server.Server) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-u.signals:
				srv.Reexecute(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
