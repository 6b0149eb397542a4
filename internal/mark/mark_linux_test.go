package mark_test

import (
	"crypto/rand"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/actiond/actiond/internal/mark"
)

// A process without an environment, and a thread of the kernel, are not waited for.
func TestExecuting(t *testing.T) {
	t.Parallel()
	const kthreadd = 2 // or another process, in a container
	bare := exec.Command("sleep", "1000")
	bare.Env = []string{}
	if err := bare.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = bare.Process.Kill()
		_ = bare.Wait()
	}()
	for mark.Executing(bare.Process.Pid) { // it may be about to begin
		runtime.Gosched()
	}
	for _, pid := range []int{os.Getpid(), kthreadd} {
		if mark.Executing(pid) {
			t.Errorf("process %d is said to execute a program", pid)
		}
	}
	if mark.Signal("ACTIOND_NO_PROCESS="+rand.Text(), os.Geteuid(), syscall.Signal(0), nil) {
		t.Error("a mark was found that no process has")
	}
}
