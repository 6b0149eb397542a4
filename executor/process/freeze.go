package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/lock"
	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/internal/terminal"
	"github.com/actiond/actiond/internal/channel"
)

// Frozen is a program on its way to another program in the same process, which can be written
// as JSON. Descriptors stay open meanwhile, and the program a child.
type Frozen struct {
	PID        int
	Name, Mark string
	Terminal   string        // "" where it has none
	Streamed   bool          // its input comes by Write
	KillAt     time.Duration // as [proc.Uptime] returns it; 0 for never
	LastOutput int64
	EndedBy    string
	Left       bool
	Final      *Result // nil unless it ended, and left its streams to other processes
	Kept       [3]Text
	Sources    []FrozenSource
	Input      *FrozenInput // nil where it has none
}

// FrozenSource is a stream of output.
type FrozenSource struct {
	Stream     Stream
	Descriptor int
}

// FrozenInput is the input of a program.
type FrozenInput struct {
	Descriptor int // closedFile also for a terminal, whose descriptor is the source's
	Taken      int64
	Last       byte
	Ended      bool
	Rest       []byte
}

// closedFile takes the place of the descriptor of a closed file.
const closedFile = -1

// errStarting says that a program cannot be frozen yet.
var errStarting = errors.New("the program is just being started")

// freezeTime bounds how long the end of a program, and the delivery of its output, are waited
// for.
const freezeTime = 2 * time.Second

// maxHanded bounds the kept output that is handed over, in bytes. Of 256 programs it would be 160 MiB,
// which three processes had in memory several times, and which takes seconds to read. All output is
// where its listener keeps it.
const maxHanded = 32 << 20

// Freeze stops the delivery of all output and input, and returns the state of the programs, so
// that another program of this process can go on with them by [Engine.Restore], or this one by
// resume. keep is called for each open file that must stay open, and returns its descriptor.
// Until resume no program ends and no Leave returns. ended are programs that may have ended, but
// were not left. others are those that cannot be frozen: they are just being started, or
// their output is not taken.
func (e *Engine) Freeze(ctx context.Context, ended []*Process, keep func(*os.File) (int, error)) (all map[*Process]*Frozen, others []*Process, resume func()) {
	ctx, cancel := context.WithTimeout(ctx, freezeTime)
	defer cancel()
	all = map[*Process]*Frozen{}
	programs := e.list()
	for _, p := range ended {
		if p.engine == e && !slices.Contains(programs, p) {
			programs = append(programs, p)
		}
	}
	for _, p := range programs {
		f, err := p.freeze(ctx, keep)
		if err != nil {
			others = append(others, p)
		} else {
			all[p] = f
		}
	}
	for _, f := range all {
		f.shorten(e.hands / len(all))
	}
	return all, others, func() {
		for p := range all {
			p.resume()
		}
	}
}

func (p *Process) freeze(ctx context.Context, keep func(*os.File) (int, error)) (*Frozen, error) {
	if !channel.Closed(p.launched) || p.tree == nil {
		return nil, errStarting
	}
	if err := lock.Before(ctx, &p.ending); err != nil {
		return nil, err
	}
	if err := lock.Before(ctx, &p.moving); err != nil {
		p.ending.Unlock()
		return nil, err
	}
	if p.input != nil {
		p.input.mu.Lock()
	}
	f, err := p.state(keep)
	if err != nil {
		p.resume()
	}
	return f, err
}

// resume lets a program go on that was frozen.
func (p *Process) resume() {
	if p.input != nil {
		p.input.mu.Unlock()
	}
	p.moving.Unlock()
	p.ending.Unlock()
}

// state returns the state of a program that is frozen.
func (p *Process) state(keep func(*os.File) (int, error)) (*Frozen, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &Frozen{
		PID: p.PID(), Name: p.Name(), Mark: p.mark, Terminal: p.terminal, Streamed: p.command.Stream,
		KillAt: p.killAt, LastOutput: p.lastOutput.Load(), Left: p.left, Final: p.final,
	}
	f.EndedBy, _ = p.endedBy.Load().(string)
	for i := range p.kept {
		f.Kept[i] = p.kept[i].text()
	}
	for _, s := range p.sources {
		fd, err := keepOpen(s.file, keep)
		if err != nil {
			return nil, err
		}
		if fd != closedFile {
			f.Sources = append(f.Sources, FrozenSource{s.stream, fd})
		}
	}
	if i := p.input; i != nil {
		f.Input = &FrozenInput{Descriptor: closedFile, Taken: i.taken, Last: i.last, Ended: i.ended, Rest: i.rest}
		if !i.terminal {
			var err error
			if f.Input.Descriptor, err = keepOpen(i.file, keep); err != nil {
				return nil, err
			}
		}
	}
	return f, nil
}

// shorten keeps so many bytes of the output at most.
func (f *Frozen) shorten(most int) {
	each := most / (2 * len(f.Kept))
	for i := range f.Kept {
		f.Kept[i].shorten(each)
	}
	if f.Final != nil {
		final := *f.Final // which this program may go on with
		for _, t := range []*Text{&final.Stdout, &final.Stderr, &final.Both} {
			t.shorten(each)
		}
		f.Final = &final
	}
}

// keepOpen is keep for a file that may be closed, whose descriptor is closedFile.
func keepOpen(file *os.File, keep func(*os.File) (int, error)) (int, error) {
	if open := terminal.Control(file, func(int) error { return nil }) == nil; !open {
		return closedFile, nil
	}
	return keep(file)
}

// Restore takes over a program that was frozen in another program of this process. The caller
// must call Attend.
func (e *Engine) Restore(f *Frozen) (*Process, error) {
	p := e.Prepare(Command{Argv: []string{f.Name}, Stream: f.Streamed})
	p.mark, p.terminal, p.killAt, p.left, p.final = f.Mark, f.Terminal, f.KillAt, f.Left, f.Final
	p.lastOutput.Store(f.LastOutput)
	if f.EndedBy != "" {
		p.endedBy.Store(f.EndedBy)
	}
	for i, text := range f.Kept {
		p.kept[i].restore(text)
	}
	var err error
	for _, s := range f.Sources {
		file, failed := openKept(s.Descriptor)
		err = errors.Join(err, failed)
		p.sources = append(p.sources, &source{stream: s.Stream, file: file, settle: p.settling.Done})
	}
	if f.Terminal != "" {
		p.command.Terminal = &Size{}
	}
	if i := f.Input; i != nil {
		var file *os.File // nil where it was closed
		switch {
		case f.Terminal != "" && len(p.sources) > 0:
			file = p.sources[0].file
		case i.Descriptor != closedFile:
			var failed error
			file, failed = openKept(i.Descriptor)
			err = errors.Join(err, failed)
		}
		p.input = newInput(file, f.Terminal != "", i.Rest)
		p.input.taken, p.input.last, p.input.ended = i.Taken, i.Last, i.Ended
	}
	close(p.launched)
	if f.Final != nil { // its number may be that of another process
		p.process, p.tree = &os.Process{Pid: f.PID}, proc.EndedTree()
		close(p.exited)
		close(p.over)
	} else {
		var failed error
		p.process, failed = os.FindProcess(f.PID)
		err = errors.Join(err, failed)
		p.tree = proc.NewTree(f.PID)
		p.settling.Add(len(p.sources))
	}
	if err != nil {
		return nil, fmt.Errorf("taking over the program %d: %w", f.PID, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.live[p] = true
	return p, nil
}

// openKept returns the file of a descriptor that was kept open.
func openKept(fd int) (*os.File, error) {
	file := os.NewFile(uintptr(fd), "stream")
	return file, terminal.Control(file, func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		return err
	})
}

// Attend goes on with a program that was taken over. Output is that of [Command]; what
// the program has begun with was told before.
func (p *Process) Attend(output func(Chunk)) {
	p.mu.Lock()
	if !p.left {
		p.output = output
	}
	p.mu.Unlock()
	p.attend()
}
