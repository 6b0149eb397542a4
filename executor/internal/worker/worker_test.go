package worker_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/actiond/actiond/executor/internal/worker"
	"github.com/actiond/actiond/internal/identity"
)

func TestReplace(t *testing.T) {
	t.Parallel()
	pool := worker.New(nil, worker.DefaultTime, worker.DefaultMemory)
	for _, test := range []struct {
		name, text, pattern, template string
		want                          string // the matches as start-end=text, or the failure
	}{
		{"groups by number and name", "a=1\nb=2\n", `(?m)^(\w)=(?P<value>\d)$`, "${value}=$1 $$", "0-3=1=a $ 4-7=2=b $"},
		{"bytes that are not UTF-8", "\xff1\xfe", `\d`, "2", "1-2=2"},
		{"an empty match", "ab", `\b`, "|", "0-0=| 2-2=|"},
		{"no match", "ab", `c`, "", ""},
		{"one more than the most", "aaaaaaa", `a`, "", "0-1= 1-2= 2-3= 3-4= 4-5= 5-6="},
		{"no valid pattern", "", `(`, "", "error parsing regexp: missing closing ): `(`"},
		{"a group that is not there", "ab", `(a)`, "$1x", `the replacement names the group "1x", which the pattern does not have: write ${1}a for group 1 before a letter, and $$ for a dollar sign`},
		{"a number that is not there", "ab", `(a)`, "$$2 ${2}", `the replacement names the group "2", which the pattern does not have: write ${1}a for group 1 before a letter, and $$ for a dollar sign`},
		{"too much", "aaaaaa", `a+`, "$0$0$0$0", "the replacements are too large"},
		{"a long pattern", "", strings.Repeat("a", 70_000), "", "the pattern and the replacement may have 65536 bytes each"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			found, err := pool.Replace(test.text, test.pattern, test.template, 5, 20)
			var shown []string
			for _, m := range found {
				shown = append(shown, fmt.Sprintf("%d-%d=%s", m.Start, m.End, m.Text))
			}
			got := strings.Join(shown, " ")
			if failure, ok := errors.AsType[*worker.Error](err); ok {
				got = failure.Reason
			} else if err != nil {
				t.Fatal(err)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// hostile takes time in the square of the text's length.
const hostile = `(?s)a(?:.*b)?`

func TestLimits(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 4<<20)
	if _, err := worker.New(nil, time.Second, worker.DefaultMemory).Replace(long, hostile, "", 1<<30, 0); !errors.Is(err, worker.ErrTime) {
		t.Errorf("a pattern that takes hours: got %v, want %v", err, worker.ErrTime)
	}
	if _, err := worker.New(nil, worker.DefaultTime, 64<<20).Replace(long, "a", "", 1<<30, 0); !errors.Is(err, worker.ErrMemory) {
		t.Errorf("four million matches in 64 MiB: got %v, want %v", err, worker.ErrMemory)
	}
}

// A child has the user's rights and no way to write files.
func TestRights(t *testing.T) {
	t.Parallel()
	uid, user := os.Geteuid(), (*identity.User)(nil)
	if uid == 0 {
		uid, user = 65001, &identity.User{UID: 65001, GID: 65002}
	}
	done := make(chan error, 1)
	go func() {
		_, err := worker.New(user, 5*time.Second, worker.DefaultMemory).Replace(strings.Repeat("a", 4<<20), hostile, "", 1<<30, 0)
		done <- err
	}()
	want := []string{fmt.Sprintf("Uid:\t%[1]d\t%[1]d\t%[1]d\t%[1]d\n", uid), "NoNewPrivs:\t1\n"}
	if user != nil {
		want = append(want, "Groups:\t \n", "CapEff:\t0000000000000000\n", "Gid:\t65002\t65002\t65002\t65002\n")
	}
	for seen := false; !seen; {
		select {
		case err := <-done:
			t.Fatalf("it ended with %v and was not seen with %q", err, want)
		default:
			seen = childWith(t, want) != 0
		}
	}
	if err := <-done; !errors.Is(err, worker.ErrTime) {
		t.Errorf("it ended with %v, want %v", err, worker.ErrTime)
	}
}

// The agent has the rights to kill a child. That is not taken for a want of memory.
func TestKilled(t *testing.T) { // not parallel: another child must not be taken for its own
	done := make(chan error, 1)
	go func() {
		_, err := worker.New(nil, worker.DefaultTime, worker.DefaultMemory).Replace(strings.Repeat("a", 4<<20), hostile, "", 1<<30, 0)
		done <- err
	}()
	pid := 0
	for pid == 0 {
		pid = childWith(t, []string{"NoNewPrivs:\t1\n"})
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, worker.ErrKilled) {
		t.Errorf("got %v, want %v", err, worker.ErrKilled)
	}
}

// A task does not wait forever for the ones before it, because its caller holds the lock of a file.
func TestBusy(t *testing.T) {
	t.Parallel()
	pool := worker.New(nil, worker.DefaultTime, worker.DefaultMemory)
	pool.TakeTurns(time.Millisecond)
	if _, err := pool.Replace("a", "a", "b", 1, 1); !errors.Is(err, worker.ErrBusy) {
		t.Errorf("got %v, want %v", err, worker.ErrBusy)
	}
}

// An error quotes the pattern, which may be long.
func TestLongFailure(t *testing.T) {
	t.Parallel()
	_, err := worker.New(nil, worker.DefaultTime, worker.DefaultMemory).Replace("", strings.Repeat("(", 60_000), "", 1, 1)
	if failure, ok := errors.AsType[*worker.Error](err); !ok || len(failure.Reason) > 1000 {
		t.Errorf("got %d bytes of %.100v", len(fmt.Sprint(err)), err)
	}
}

// childWith returns the process id of a child that has all of the lines in its status, 0 without one.
func childWith(t *testing.T, lines []string) int {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/status")
	if err != nil {
		t.Fatal(err)
	}
next:
	for _, path := range found {
		status, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(status), "PPid:\t"+strconv.Itoa(os.Getpid())+"\n") {
			continue
		}
		for _, line := range lines {
			if !strings.Contains(string(status), line) {
				continue next
			}
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	return 0
}

func BenchmarkReplace(b *testing.B) {
	pool := worker.New(nil, worker.DefaultTime, worker.DefaultMemory)
	for b.Loop() {
		if _, err := pool.Replace("a", "a", "b", 1, 1); err != nil {
			b.Fatal(err)
		}
	}
}
