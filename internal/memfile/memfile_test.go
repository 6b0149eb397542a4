package memfile

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/testhelp"
)

// The value stored last is read, also where it is shorter than the one before.
func TestMemory(t *testing.T) {
	t.Parallel()
	m, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var got string
	if err := m.Load(&got); err == nil || m.Written() {
		t.Errorf("an empty one has %q, %v", got, err)
	}
	fd, err := unix.Dup(int(m.OSFile().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	other, err := Open(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for i, want := range []string{strings.Repeat("long ", 100_000), "short", "", "no UTF-8: \xff", "last"} {
		if err := []*File{m, other}[i%2].Store(want); err != nil {
			t.Fatal(err)
		}
		if err := other.Load(&got); err != nil || got != want || !m.Written() {
			t.Errorf("got %.20q, %v, want %.20q", got, err, want)
		}
	}
	if err := m.Store(strings.Repeat("x", place)); err == nil {
		t.Error("too large a value was stored")
	}
	if err := m.Store(make(chan int)); err == nil {
		t.Error("a channel was stored")
	}
	if err := m.Load(&got); err != nil || got != "last" {
		t.Errorf("after values that cannot be stored: %q, %v", got, err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("a program that is executed gets it: %d, %v", flags, err)
	}
}

// Only what New made is taken over.
func TestOpen(t *testing.T) {
	t.Parallel()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	state, err := create("state") // without the seals
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	for _, fd := range []int{int(file.Fd()), int(state.Fd()), 1 << 20} {
		if _, err := Open(fd); err == nil {
			t.Errorf("descriptor %d was taken for a memory", fd)
		}
	}
	// The kernel may add a seal, see vm.memfd_noexec.
	for _, flags := range []int{0, unix.MFD_NOEXEC_SEAL} {
		fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
		if flags != 0 && errors.Is(err, unix.EINVAL) {
			continue // before Linux 6.3
		}
		if err == nil {
			_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
		}
		if err != nil {
			t.Fatal(err)
		}
		m, err := Open(fd)
		if err != nil {
			t.Errorf("with flags %#x: %v", flags, err)
			continue
		}
		m.Close()
	}
}

// A process that is killed while it writes leaves one whole value.
func TestMemoryOfTheKilled(t *testing.T) {
	if os.Getenv("ACTIOND_TEST_WRITES") != "" {
		m, err := Open(3)
		if err != nil {
			t.Fatal(err)
		}
		for i := byte(0); ; i++ {
			if err := m.Store(strings.Repeat(string('a'+rune(i%26)), 1<<20)); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Parallel()
	m, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for range 20 {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestMemoryOfTheKilled$")
		cmd.Env = append(os.Environ(), "ACTIOND_TEST_WRITES=1")
		cmd.ExtraFiles = []*os.File{m.OSFile()}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		before := m.current()
		testhelp.Eventually(t, func() bool { return m.current() != before }, "the process writes")
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		var got string
		if err := m.Load(&got); err != nil || len(got) != 1<<20 || strings.Trim(got, got[:1]) != "" {
			t.Fatalf("read %d bytes, %v", len(got), err)
		}
	}
}
