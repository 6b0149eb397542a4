package handover_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/handover"
	"github.com/actiond/actiond/internal/memfile"
)

// After a program that cannot be executed this one can open as many files as before.
func TestExecFails(t *testing.T) {
	t.Parallel()
	if os.Getenv("ACTIOND_TEST_EXEC") == "" {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", `ulimit -Sn 100 && exec "$0" -test.run='^TestExecFails$' -test.v`, os.Args[0])
		cmd.Env = append(os.Environ(), "ACTIOND_TEST_EXEC=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	program, err := handover.Unchecked(t.TempDir(), strings.NewReader("no program"))
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	memory, err := memfile.New()
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	listener, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var before, after unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil || before.Cur <= 100 {
		t.Fatalf("the runtime raises the limit: got %+v, %v", before, err)
	}
	if err := program.Exec(nil, int(memory.OSFile().Fd()), int(listener.Fd())); err == nil {
		t.Error("it was executed")
	}
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &after); err != nil || after != before {
		t.Errorf("got %+v, %v, want %+v", after, err, before)
	}
	for _, f := range []*os.File{memory.OSFile(), listener} {
		if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("a child gets the %s: %d, %v", f.Name(), flags, err)
		}
	}
}
