package bash_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/bash"
)

// told collects what a stream tells, and wants it without a gap.
type told struct {
	t    *testing.T
	from int64
	data []byte
	lost int64
}

func (o *told) take(c bash.Chunk) {
	if len(o.data) == 0 && o.lost == 0 {
		o.from = c.Offset - c.Missed
	}
	if want := o.end(); c.Offset-c.Missed != want {
		o.t.Errorf("got a chunk at %d after %d missed, want it to follow %d", c.Offset, c.Missed, want)
	}
	o.lost += c.Missed
	o.data = append(o.data, c.Data...)
}

func (o *told) end() int64 { return o.from + o.lost + int64(len(o.data)) }

func stream(t *testing.T, s *bash.Session, c bash.Command) (bash.Result, *told) {
	t.Helper()
	o := &told{t: t}
	c.Output = o.take
	r, err := s.Run(t.Context(), c)
	if err != nil {
		t.Fatalf("%q: %v", c.Text, err)
	}
	if len(o.data) > 0 && (o.from != r.Start || o.end() != r.End) {
		t.Errorf("%q: was told %d to %d, want %d to %d", c.Text, o.from, o.end(), r.Start, r.End)
	}
	return r, o
}

func TestStream(t *testing.T) {
	t.Parallel()
	for name, program := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := session(t, program)
			for _, tt := range []struct {
				c    bash.Command
				want string
			}{
				{bash.Command{Text: "echo one; echo two"}, "one\r\ntwo\r\n"},
				{bash.Command{Text: "true"}, ""},
				{bash.Command{Text: `printf '\377\000\303'; printf '\033[31mred'`}, "\xff\x00\xc3\x1b[31mred"},
				{bash.Command{Text: "read x; echo got $x", Soft: short}, ""},
				{bash.Command{Text: "more", Soft: short}, ""}, // refused
				{bash.Command{Text: "typed", Input: true}, "typed\r\ngot typed\r\n"},
				{bash.Command{Text: ""}, ""}, // nothing to poll
				{bash.Command{Text: "kill -9 $$"}, ""},
				{bash.Command{Text: "echo anew"}, "anew\r\n"},
			} {
				tt.c.Hard = long
				if _, o := stream(t, s, tt.c); string(o.data) != tt.want {
					t.Errorf("%q: got %q, want %q", tt.c.Text, o.data, tt.want)
				}
			}
		})
	}
}

// Each byte is told once, and the offsets of one answer go on in the next.
func TestStreamPolls(t *testing.T) {
	t.Parallel()
	s := session(t, "")
	const size = 100000
	r, o := stream(t, s, bash.Command{Text: `stty -echo; for i in 1 2 3; do head -c 100000 /dev/zero | tr '\0' $i; read x; done`, Soft: short, Hard: long})
	all := o.data
	for i := 1; i <= 3; i++ {
		for r.Outcome == bash.Silent && len(all) < i*size {
			from := r.End
			r, o = stream(t, s, bash.Command{Soft: short, Hard: long})
			if len(o.data) > 0 && o.from != from {
				t.Errorf("got an answer from %d, want it from %d", o.from, from)
			}
			all = append(all, o.data...)
		}
		r, o = stream(t, s, bash.Command{Text: "C-j", Input: true, Soft: short, Hard: long})
		all = append(all, o.data...)
	}
	want := strings.Repeat("1", size) + strings.Repeat("2", size) + strings.Repeat("3", size)
	for r.Outcome == bash.Silent {
		r, o = stream(t, s, bash.Command{Soft: short, Hard: long})
		all = append(all, o.data...)
	}
	if string(all) != want || r.Outcome != bash.Completed {
		t.Errorf("got outcome %d and %d bytes, want completed and %d", r.Outcome, len(all), len(want))
	}
}

// A stream that no caller waits for any more ends nothing, and the next answer
// tells from its beginning.
func TestStreamReaderLeaves(t *testing.T) {
	t.Parallel()
	s := session(t, "")
	ctx, leave := context.WithCancelCause(t.Context())
	left := errors.New("left")
	_, err := s.Run(ctx, bash.Command{Text: "echo one; read x; echo two", Hard: long, Output: func(bash.Chunk) { leave(left) }})
	if !errors.Is(err, left) {
		t.Fatalf("got %v, want it to be left", err)
	}
	r, o := stream(t, s, bash.Command{Text: "C-j", Input: true, Hard: long})
	if got, want := string(o.data), "one\r\n\r\ntwo\r\n"; got != want || r.Outcome != bash.Completed {
		t.Errorf("got outcome %d and %q, want %q", r.Outcome, got, want)
	}
}

// The bytes told are those written, of every kind.
func TestStreamIsExact(t *testing.T) {
	t.Parallel()
	s := session(t, "")
	do(t, s, "head -c 5000000 /dev/urandom > bytes") // more than the log keeps
	r, o := stream(t, s, bash.Command{Text: "stty -opost; cat bytes; sha256sum <bytes >sum", Hard: long})
	sum := do(t, s, "cut -c1-64 sum").Output
	if got := fmt.Sprintf("%x", sha256.Sum256(o.data)); got != sum || r.Status != 0 {
		t.Errorf("got status %d and %d bytes with sum %s, want 0 and 5000000 with %s", r.Status, len(o.data), got, sum)
	}
}

// A run that has to wait says so before it waits, and that it begins before the shell
// has its command.
func TestHooks(t *testing.T) {
	t.Parallel()
	s := session(t, "")
	queued, release := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		_, err := s.Run(t.Context(), bash.Command{Text: "echo >fifo_was_given; true", Hard: long, Queue: func() { t.Error("nothing was there to wait for") }, Begin: func() error {
			close(begun)
			<-release
			return nil
		}})
		first <- err
	}()
	<-begun
	second := make(chan bash.Result, 1)
	var hooks []string
	go func() {
		r, err := s.Run(t.Context(), bash.Command{
			Text: "echo two", Hard: long,
			Queue: func() { hooks = append(hooks, "queue"); close(queued) }, Begin: func() error { hooks = append(hooks, "begin"); return nil },
		})
		if err != nil {
			t.Error(err)
		}
		second <- r
	}()
	<-queued
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := make(chan error, 1)
	waits := make(chan struct{})
	go func() {
		_, err := s.Run(ctx, bash.Command{Text: "echo never >never", Hard: long, Queue: func() { close(waits) }, Begin: func() error { t.Error("it began"); return nil }})
		cancelled <- err
	}()
	<-waits
	cancel()
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled in the queue: %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
	if r := <-second; r.Output != "two" || fmt.Sprint(hooks) != "[queue begin]" {
		t.Errorf("got %q after %v", r.Output, hooks)
	}
	no := errors.New("no")
	_, err := s.Run(t.Context(), bash.Command{Text: "echo never >never", Hard: long, Begin: func() error { return no }})
	if !errors.Is(err, no) || !errors.Is(err, bash.ErrNotBegun) {
		t.Errorf("kept from beginning: %v", err)
	}
	if r := do(t, s, "ls never"); r.Status == 0 {
		t.Error("the cancelled command ran")
	}
}
