package bash_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/bash"
	"github.com/actiond/actiond/internal/testhelp"
)

// person is a user at an attached terminal.
type person struct {
	t *testing.T
	a *bash.Attachment

	mu    sync.Mutex
	seen  string
	ended error
	more  chan struct{}
}

func attach(t *testing.T, s *bash.Session, types bool) *person {
	t.Helper()
	p := &person{t: t, a: s.Attach(t.Context(), types), more: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := p.a.Read(ctx, buf)
			p.mu.Lock()
			p.seen += string(buf[:n])
			p.ended = err
			p.mu.Unlock()
			select {
			case p.more <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		stop()
		reading.Wait()
		p.a.Close()
	})
	return p
}

func (p *person) types(text string) {
	p.t.Helper()
	if err := p.a.Type(p.t.Context(), []byte(text)); err != nil {
		p.t.Fatal(err)
	}
}

// sees waits for text and forgets what came up to its end.
func (p *person) sees(text string) (before string) {
	p.t.Helper()
	limit := time.After(long)
	for {
		p.mu.Lock()
		before, after, found := strings.Cut(p.seen, text)
		if found {
			p.seen = after
		}
		p.mu.Unlock()
		if found {
			return before
		}
		select {
		case <-p.more:
		case <-limit:
			p.t.Fatalf("never saw %q, but %q", text, before)
		}
	}
}

// leaves waits for the end of the terminal.
func (p *person) leaves() {
	p.t.Helper()
	limit := time.After(long)
	for {
		p.mu.Lock()
		err := p.ended
		p.mu.Unlock()
		if errors.Is(err, io.EOF) {
			return
		}
		select {
		case <-p.more:
		case <-limit:
			p.t.Fatal("the terminal goes on")
		}
	}
}

// runs types a command and returns once it has ended, having written want.
func (p *person) runs(s *bash.Session, text, want string) {
	p.t.Helper()
	p.types(text + "\r")
	p.sees(want)
	testhelp.Eventually(p.t, func() bool { return !s.Info().Busy }, "%q ends", text)
}

func TestAttachFeelsLikeAShell(t *testing.T) {
	t.Parallel()
	for name, program := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := session(t, program)
			dir := s.Info().Dir
			p := attach(t, s, true)
			p.sees(dir)
			p.types("echo o")
			p.types("n\x7fne\r")
			p.sees("\r\none\r\n")
			p.sees(dir)
			p.runs(s, "cd /; echo there", "\r\nthere\r\n")
			p.types("for i in 1 2; do\recho <$i>\x1b[D\x7f\x1b[3~\x01\x1b[C\x05\x15echo n$i\rdone\r")
			p.sees("\r\nn1\r\nn2\r\n")
			p.sees("\r\x1b[K/")
			p.types("\x1b[A\x1b[A\x1b[B\x03")
			p.sees("^C")
			p.types("read x && echo got $x\r")
			p.sees("echo got $x\r\n")
			waitBusy(t, s)
			p.types("yes\r")
			p.sees("\r\ngot yes\r\n")
			p.sees("\r\x1b[K/")
			p.types("sleep 1000\r")
			p.sees("sleep 1000\r\n")
			waitBusy(t, s)
			p.types("\x03")
			p.sees("^C")
			p.sees("\r\x1b[K/")
			p.types("echo a 'b\rc'\recho pasted\r")
			p.sees("\r\na b\r\nc\r\n")
			p.sees("echo pasted\r\npasted\r\n")
			p.sees("\r\x1b[K/")
			if r := do(t, s, "pwd; read -t 0.01 x </dev/tty; echo \"<$x>\""); name == "bash" && r.Output != "/\n<>" {
				t.Errorf("the agent's command got %q", r.Output)
			}
			p.sees("pwd; read")
			p.types("exit\r")
			p.leaves()
			if r := do(t, s, "echo $$"); r.Restarted != "" || r.Output != fmt.Sprint(s.Info().PID) {
				t.Errorf("leaving ended the shell: %+v", r)
			}
		})
	}
}

// A pasted text runs line by line, however many pieces it comes in.
func TestAttachPaste(t *testing.T) {
	t.Parallel()
	for name, program := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := session(t, program)
			p := attach(t, s, true)
			p.sees(s.Info().Dir)
			var pasted, want strings.Builder
			for i := range 105 {
				line := fmt.Sprintf("line-%03d-%s", i, strings.Repeat("x", 70))
				fmt.Fprintf(&pasted, "echo %s >>pasted\r", line)
				want.WriteString(line + "\n")
			}
			for piece := range slices.Chunk([]byte(pasted.String()), 4095) {
				p.types(string(piece))
			}
			p.types("echo all; cat pasted; echo of' 'it\r")
			p.sees("\r\nall\r\n")
			if got := strings.ReplaceAll(p.sees("of it\r\n"), "\r", ""); got != want.String() {
				t.Errorf("of 105 lines these ran:\n%s", got)
			}
		})
	}
}

// Text typed while a command runs goes to the command if it reads, and otherwise to the
// next prompt; keys with a signal discard it.
func TestAttachTypeAhead(t *testing.T) {
	t.Parallel()
	for name, program := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := session(t, program)
			p := attach(t, s, true)
			p.sees(s.Info().Dir)
			p.types("while ! [ -e go ]; do sleep 0.01; done; echo wait''ed\r")
			waitBusy(t, s)
			p.types("echo first''ly; read x\r")
			p.types("echo <$x\x7f$x> is re''ad\rrea\x7fad y\rinput of y\recho \"<$y>\" sec''ond\r")
			p.sees("echo first''ly; read x\r\n") // the terminal shows the first line
			testhelp.WriteFile(t, filepath.Join(s.Info().Dir, "go"), "", 0o600)
			p.sees("waited\r\n")
			p.sees("\r\nfirstly\r\n")
			p.sees("<input of y> second\r\n")

			p.types("sh -c 'echo be''gun; exec sleep 1000'; echo wait''ed\r") // a shell that starts programs may miss the key
			p.sees("\r\nbegun\r\n")
			p.types("echo disc''arded\recho disc''arded too\r")
			p.sees("echo disc''arded\r\n")
			p.types("echo discarded''\r\x03echo ki''pt\r")
			if got := p.sees("\r\nkipt\r\n"); strings.Contains(got, "discarded") || strings.Contains(got, "waited") {
				t.Errorf("got %q", got)
			}

			p.types("cat >copy; cat copy\r" + strings.Repeat("0123456789 pasted into a program\r", 300) + "\x04echo $(wc -l <copy) lines\r")
			p.sees("\r\n300 lines\r\n")
			p.types("stty raw -echo; echo ra''w; head -c 5; stty sane; echo\r")
			p.sees("\r\nraw")
			p.types("ab")
			p.types("\x03\rc")
			p.sees("ab\x03\rc")
			p.sees(s.Info().Dir)
			p.types("kill -9 $$\r")
			p.sees("kill -9 $$\r\n")
			p.sees(s.Info().Dir) // what the terminal of a dead shell holds is lost
			p.types("echo surv''ived\r")
			p.sees("\r\nsurvived\r\n")
		})
	}
}

// A key that sends no signal is typed once, also where the shell is about to start a program.
func TestAttachInterruptAsInput(t *testing.T) {
	t.Parallel()
	for name, program := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := session(t, program)
			p := attach(t, s, true)
			p.sees(s.Info().Dir)
			// No program has the terminal before the key is read.
			p.types("stty raw -echo; echo ra''w; x=$(dd bs=1 count=1 2>/dev/null); head -c 1; stty sane; echo\r")
			p.sees("\r\nraw\n")
			p.types("\x03")
			p.types("a")
			if got := p.sees("\r\n"); got != "a" {
				t.Errorf("the program read %q, want %q", got, "a")
			}
		})
	}
}

// Text typed into a command that another client types into too is input of the command only.
func TestAttachTypeAheadOfTwo(t *testing.T) {
	t.Parallel()
	s := session(t, "")
	p := attach(t, s, true)
	p.sees(s.Info().Dir)
	p.types("while ! [ -e go ]; do sleep 0.01; done\r")
	waitBusy(t, s)
	if r, err := s.Run(t.Context(), bash.Command{Text: "echo by the agent", Input: true, Soft: short, Hard: long}); err != nil || r.Outcome != bash.Silent {
		t.Fatalf("got %+v, %v", r, err)
	}
	p.types("echo by a person")
	p.sees("echo by a person")
	testhelp.WriteFile(t, filepath.Join(s.Info().Dir, "go"), "", 0o600)
	p.sees("\r\x1b[K")
	p.runs(s, "echo per''son", "\r\nperson\r\n")
}

func waitBusy(t *testing.T, s *bash.Session) {
	t.Helper()
	testhelp.Eventually(t, func() bool { return s.Info().Busy }, "a command runs")
}

// One who attaches sees what came before, then what the agent does, and what it
// runs; leaving has no effect, and another goes on where the first left.
func TestAttachLooksOn(t *testing.T) {
	t.Parallel()
	s := session(t, "")
	do(t, s, "echo before")
	p := attach(t, s, false)
	p.sees("echo before\r\nbefore\r\n")
	do(t, s, "echo meanwhile; printf 'no newline'")
	p.sees("echo meanwhile; printf 'no newline'\r\nmeanwhile\r\nno newline")
	do(t, s, "echo \x1b]0;title\x07")
	p.sees("echo  ]0;title ") // of the text nothing is obeyed
	if err := p.a.Type(t.Context(), []byte("x")); err == nil {
		t.Error("one who looks could type")
	}
	p.a.Resize(10, 10)
	if got := do(t, s, "stty size").Output; got != "1000 1000" {
		t.Errorf("one who looks made the size %s", got)
	}
	s.Close()
	p.leaves()
}

// Typed text never gets into another command, however it ends.
func TestAttachTypingCannotCorrupt(t *testing.T) {
	t.Parallel()
	for name, program := range shells(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := session(t, program)
			people := []*person{attach(t, s, true), attach(t, s, true)}
			ctx, stop := context.WithCancel(t.Context())
			var typing sync.WaitGroup
			for i, p := range people {
				typing.Go(func() {
					keys := []string{"garbage", "\x03", "'", "\"", "echo hi\r", "\x1b[A\r", "\x04", "$(\r", "\x1a", "\x00\xff\x1b", "\x15"}
					for n := i; ctx.Err() == nil; n++ {
						_ = p.a.Type(ctx, []byte(keys[n*7%len(keys)]))
						time.Sleep(time.Millisecond) // as fast as no person
					}
				})
			}
			for i := range 30 {
				want := fmt.Sprintf("answer %d", i)
				for {
					r, err := s.Run(t.Context(), bash.Command{Text: "echo 'answer' " + fmt.Sprint(i), Hard: long})
					if err != nil {
						t.Fatal(err)
					}
					if r.Outcome == bash.Completed && r.Status == 0 {
						// Text typed meanwhile is echoed, as on any terminal.
						if !strings.Contains(r.Output, want) && !strings.Contains(r.Output, "^C") {
							t.Errorf("got %q, want %q", r.Output, want)
						}
						break
					}
				}
			}
			stop()
			typing.Wait()
			for _, p := range people {
				p.a.Close()
			}
			if r := settle(t, s); r.Output != "still here" {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// settle ends whatever was typed last and runs a command.
func settle(t *testing.T, s *bash.Session) bash.Result {
	t.Helper()
	for {
		r, err := s.Run(t.Context(), bash.Command{Text: "echo still here", Hard: long})
		if err != nil {
			t.Fatal(err)
		}
		if r.Outcome == bash.Completed {
			return r
		}
		if _, err := s.Run(t.Context(), bash.Command{Text: "C-c", Input: true, Hard: short}); err != nil {
			t.Fatal(err)
		}
	}
}

// The size is that of the client that typed or was resized last, and goes back when it leaves.
func TestAttachSize(t *testing.T) {
	t.Parallel()
	s := session(t, "")
	size := func(want string) {
		t.Helper()
		if got := do(t, s, "stty size").Output; got != want {
			t.Errorf("got size %s, want %s", got, want)
		}
	}
	one, two := attach(t, s, true), attach(t, s, true)
	size("1000 1000")
	one.a.Resize(24, 80)
	size("24 80")
	two.a.Resize(-5, 99999)
	size("1 1000")
	one.types("\x7f") // in an empty line
	size("24 80")
	two.types("\x7f")
	size("1 1000")
	do(t, s, "kill -9 $$")
	size("1 1000") // in the next shell too
	two.a.Close()
	size("24 80")
	one.a.Close()
	size("1000 1000")
}

// An agent's command that runs gets a person's keys; the agent's next action
// works, and polls say nothing of a person's commands that have ended.
func TestAttachBesideAnAgent(t *testing.T) {
	t.Parallel()
	s := session(t, "")
	p := attach(t, s, true)
	r, err := s.Run(t.Context(), bash.Command{Text: "cat", Soft: short, Hard: long})
	if err != nil || r.Outcome != bash.Silent {
		t.Fatalf("got %+v, %v", r, err)
	}
	p.sees("cat\r\n")
	p.types("by hand\r")
	p.sees("by hand\r\nby hand\r\n")
	p.types("\x04")
	r, err = s.Run(t.Context(), bash.Command{Hard: long})
	if err != nil || r.Outcome != bash.Completed || r.Output != "by hand\nby hand" {
		t.Errorf("got %+v, %v", r, err)
	}
	p.sees(s.Info().Dir)
	p.types("echo person's && false\r") // an open quote
	p.runs(s, "'", "\r\npersons && false\r\n")
	p.runs(s, "\x03echo of a person", "\r\nof a person\r\n")
	r, err = s.Run(t.Context(), bash.Command{Hard: long})
	if err != nil || r.Outcome != bash.NothingToPoll {
		t.Errorf("got %+v, %v, want nothing to poll", r, err)
	}
	p.types("sleep 1000\r")
	p.sees("sleep 1000\r\n")
	waitBusy(t, s)
	r, err = s.Run(t.Context(), bash.Command{Text: "echo agent", Hard: long})
	if err != nil || r.Outcome != bash.Refused {
		t.Errorf("got %+v, %v, want it refused while a person's command runs", r, err)
	}
	if r, err = s.Run(t.Context(), bash.Command{Text: "C-c", Input: true, Hard: long}); err != nil || r.Status != 130 {
		t.Errorf("got %+v, %v", r, err)
	}
	if r := do(t, s, "echo agent"); r.Output != "agent" {
		t.Errorf("got %+v", r)
	}
}

// A hundred who look and never read cost the command nothing.
func TestAttachHundreds(t *testing.T) {
	t.Parallel()
	s := session(t, "")
	for range 100 {
		a := s.Attach(t.Context(), true)
		defer a.Close()
	}
	late := attach(t, s, false)
	if r := do(t, s, "head -c 5000000 /dev/zero | tr '\\0' x; echo end"); r.Status != 0 {
		t.Errorf("got %+v", r)
	}
	late.sees("end\r\n")
}

// A hidden command stays out of the scroll-back where a second shell carries it out.
func TestAttachHiddenInNewShell(t *testing.T) {
	t.Parallel()
	s := session(t, shells(t)["bash"])
	for _, c := range []bash.Command{{Text: "enable -n eval"}, {Text: "echo hid''den", Hidden: true}} {
		c.Hard = -1
		if r, err := s.Run(t.Context(), c); err != nil || r.Outcome != bash.Completed {
			t.Fatalf("%q: got %+v, %v, want it to complete", c.Text, r, err)
		}
	}
	before := attach(t, s, false).sees("hidden")
	if strings.Contains(before, "echo hid") || !strings.Contains(before, "enable -n eval") {
		t.Errorf("got %q before the output, want it without the hidden command", before)
	}
}
