package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/process"
)

// collector keeps what a program writes.
type collector struct {
	mu      sync.Mutex
	begun   int
	streams [2]bytes.Buffer
	wrong   string
}

func (c *collector) take(chunk process.Chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if chunk.PID != 0 {
		c.begun++
		return
	}
	if have := int64(c.streams[chunk.Stream].Len()); chunk.Offset != have {
		c.wrong = fmt.Sprintf("%d bytes at %d behind %d", len(chunk.Data), chunk.Offset, have)
	}
	_, _ = c.streams[chunk.Stream].Write(chunk.Data)
}

// hop hands all programs of an engine over to another one, as an upgrade would, and returns the
// one that p became. Until the test is over nothing of the old engine runs; in the place of its
// descriptors it has the null device.
func hop(t *testing.T, from *process.Engine, p *process.Process, output func(process.Chunk)) (*process.Engine, *process.Process) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	all, others, resume := from.Freeze(t.Context(), []*process.Process{p}, func(f *os.File) (fd int, err error) {
		raw, err := f.SyscallConn()
		if err != nil {
			return 0, err
		}
		return fd, errors.Join(raw.Control(func(n uintptr) {
			if fd, err = unix.FcntlInt(n, unix.F_DUPFD_CLOEXEC, 0); err == nil {
				err = unix.Dup3(int(null.Fd()), int(n), unix.O_CLOEXEC)
			}
		}), err)
	})
	t.Cleanup(resume) // the cleanup of the engine comes later
	if len(others) > 0 {
		t.Fatalf("%d programs do not stop", len(others))
	}
	to := engine(t)
	var next *process.Process
	for old, frozen := range all {
		document, err := json.Marshal(frozen)
		if err != nil {
			t.Fatal(err)
		}
		frozen = new(process.Frozen)
		if err := json.Unmarshal(document, frozen); err != nil {
			t.Fatal(err)
		}
		restored, err := to.Restore(frozen)
		if err != nil {
			t.Fatal(err)
		}
		if old == p {
			next = restored
			restored.Attend(output)
		} else {
			restored.Attend(nil)
		}
	}
	return to, next
}

// Whenever a program is handed over, its output is delivered once and in order, its input goes
// on, and it ends as it would have.
func TestFreeze(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	large := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	for _, test := range []struct {
		name    string
		command process.Command
		ends    string // makes the program end
		stdout  string
		stderr  string
		code    int
	}{
		{"floods both streams", process.Command{Argv: sh("seq 300000; seq 300000 >&2; exit 3")}, "", seq(300000), seq(300000), 3},
		{"closes its streams", process.Command{Argv: sh("echo a; exec >&- 2>&-; while [ ! -e closes ]; do sleep .01; done; exit 4")}, "closes", "a\n", "", 4},
		{"reads a long text", process.Command{Argv: sh("while [ ! -e reads ]; do sleep .01; done; cat"), Input: large}, "reads", string(large), "", 0},
		{"is killed", process.Command{Argv: sh("echo a; while [ ! -e killed ]; do sleep .01; done; kill -9 $$")}, "killed", "a\n", "", -1},
		{"on a terminal", process.Command{Argv: sh("stty -opost <&1; while [ ! -e tty ]; do sleep .01; done; test -t 1 && seq 20000"), Terminal: &process.Size{Rows: 5, Cols: 5}}, "tty", seq(20000), "", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var got collector
			test.command.Dir, test.command.Output = dir, got.take
			e := engine(t)
			p := start(t, e, test.command)
			for range 5 {
				e, p = hop(t, e, p, got.take)
				if p == nil {
					break // it has ended
				}
				time.Sleep(time.Millisecond) // which moment it is does not matter
			}
			if test.ends != "" {
				if err := os.WriteFile(filepath.Join(dir, test.ends), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if p == nil {
				t.Fatal("the program was lost")
			}
			r, err := p.Wait(t.Context(), long)
			if err != nil || r.Running || r.ExitCode != test.code || r.EndedBy != "" || r.CPU == 0 {
				t.Errorf("got %+v, %v", r, err)
			}
			got.mu.Lock()
			defer got.mu.Unlock()
			stdout, stderr := got.streams[0].String(), got.streams[1].String()
			if stdout != test.stdout || stderr != test.stderr || got.wrong != "" || got.begun != 1 {
				t.Errorf("got %d and %d bytes, %d beginnings, wrong: %q; the first are %.40q", len(stdout), len(stderr), got.begun, got.wrong, stdout)
			}
			for i, text := range []process.Text{r.Stdout, r.Stderr} {
				all := got.streams[i].Bytes()
				if text.Total != int64(len(all)) || !bytes.HasPrefix(all, text.Head) || !bytes.HasSuffix(all, text.Tail) || len(text.Head)+len(text.Tail) != min(len(all), 256<<10) {
					t.Errorf("the result has %d+%d of %d bytes", len(text.Head), len(text.Tail), text.Total)
				}
			}
		})
	}
}

// seq is what the program of that name prints.
func seq(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintln(&b, i+1)
	}
	return b.String()
}

// A stream of input goes on at its offset, also where the program took a part of what was
// written; the end that was typed or closed stays.
func TestFreezeInput(t *testing.T) {
	t.Parallel()
	e := engine(t)
	var got collector
	data := bytes.Repeat([]byte("0123456789abcde\n"), 1<<14)
	gate := filepath.Join(t.TempDir(), "go")
	p := start(t, e, process.Command{Argv: sh("while [ ! -e " + gate + " ]; do sleep .01; done; cat"), Stream: true, Output: got.take})
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	t.Cleanup(writing.Wait)
	writing.Go(func() { _, _ = p.Write(ctx, 0, data, false) }) // the pipe takes a part
	for next := int64(0); next == 0; {                         // until it does
		next, _ = p.Next()
	}
	e, p2 := hop(t, e, p, got.take)
	cancel()
	next, taken := p2.Next()
	if !taken || next <= 0 || next >= int64(len(data)) {
		t.Fatalf("the input goes on at %d", next)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if next, err := p2.Write(t.Context(), 0, data, false); err != nil || next != int64(len(data)) {
		t.Errorf("got %d, %v", next, err)
	}
	_, p3 := hop(t, e, p2, got.take)
	if next, err := p3.Write(t.Context(), int64(len(data)), []byte("end"), true); err != nil || next != int64(len(data))+3 {
		t.Errorf("got %d, %v", next, err)
	}
	if r, err := p3.Wait(t.Context(), long); err != nil || r.ExitCode != 0 {
		t.Errorf("got %+v, %v", r, err)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	if want := string(data) + "end"; got.streams[0].String() != want {
		t.Errorf("got %d bytes, want %d", got.streams[0].Len(), len(want))
	}
}

// Input of a program whose end came before it was handed over is refused as behind any end.
func TestFreezeEnded(t *testing.T) {
	t.Parallel()
	e := engine(t)
	p := start(t, e, process.Command{Argv: sh("exit 3"), Stream: true})
	if r, err := p.Wait(t.Context(), long); err != nil || r.ExitCode != 3 {
		t.Fatalf("got %+v, %v", r, err)
	}
	_, p = hop(t, e, p, nil)
	if r, err := p.Wait(t.Context(), 0); err != nil || r.Running || r.ExitCode != 3 {
		t.Errorf("got %+v, %v", r, err)
	}
	if _, err := p.Write(t.Context(), 0, []byte("x"), true); !errors.Is(err, process.ErrUnread) {
		t.Errorf("got %v, want %v", err, process.ErrUnread)
	}
}

// Of the output of many programs less is handed over, from its middle, and what comes later is
// the end of it.
func TestFreezeMuchOutput(t *testing.T) {
	t.Parallel()
	const programs, each = 4, 1200
	for name, end := range map[string]string{"running": "while [ ! -e %s ]; do sleep .01; done; echo end", "ended": "true %s"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := filepath.Join(t.TempDir(), "go")
			e := engine(t)
			e.SetHands(programs * 6 * each)
			var got *collector
			var p *process.Process
			for range programs { // one of which is looked at
				got = new(collector)
				p = start(t, e, process.Command{Argv: sh("seq 10000; echo few >&2; " + fmt.Sprintf(end, gate)), Output: got.take})
			}
			want := seq(10000)
			for size := 0; size < len(want); time.Sleep(time.Millisecond) {
				got.mu.Lock()
				size = got.streams[0].Len()
				got.mu.Unlock()
			}
			if name == "ended" {
				if _, err := p.Wait(t.Context(), long); err != nil {
					t.Fatal(err)
				}
			} else {
				want += "end\n"
			}
			for range 2 {
				e, p = hop(t, e, p, got.take)
				e.SetHands(programs * 6 * each)
			}
			if err := os.WriteFile(gate, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := p.Wait(t.Context(), long)
			if err != nil || r.Running || r.ExitCode != 0 {
				t.Fatalf("got %+v, %v", r, err)
			}
			if out := r.Stdout; out.Total != int64(len(want)) || len(out.Head)+len(out.Tail) > 8*each || !strings.HasPrefix(want, string(out.Head)) || !strings.HasSuffix(want, string(out.Tail)) || len(out.Tail) < each {
				t.Errorf("got %d+%d of %d bytes, the end is %.40q", len(out.Head), len(out.Tail), out.Total, out.Tail[max(0, len(out.Tail)-40):])
			}
			if got := all(t, r.Stderr); got != "few\n" {
				t.Errorf("got %q", got)
			}
		})
	}
}
