package proc

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/actiond/actiond/executor/internal/proc/reexec"
)

const (
	// self is this program, also where its file was replaced.
	self = "/proc/self/exe"
	// startTime bounds how long a child takes to become the program.
	startTime = 10 * time.Second
)

// Start is cmd.Start that returns once the program runs, or could not be started. It
// obeys interrupts and hang-ups also where this process ignores them. cmd is changed by it.
func Start(cmd *exec.Cmd) error {
	if cmd.Err != nil {
		return cmd.Err
	}
	return start(cmd, startTime, cmd.Path != reexec.Self && stubRuns())
}

// start starts cmd through a stub, or through a copy of this program, also where no stub can
// be made, as with a limit of the size of files.
func start(cmd *exec.Cmd, limit time.Duration, stub bool) error {
	said, say, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = said.Close() }()
	program, dir, failure := cmd.Path, cmd.Dir, copyFailure
	if len(cmd.Args) == 0 { // as in cmd.Start
		cmd.Args = []string{program}
	}
	var file *os.File
	if stub {
		file, err = useStub(cmd, say)
	}
	if stub && err == nil {
		defer func() { _ = file.Close() }()
		failure = stubFailure
	} else {
		rewrite(cmd, say)
	}
	err = cmd.Start()
	_ = say.Close()
	if err != nil {
		return err
	}
	_ = said.SetReadDeadline(time.Now().Add(limit)) // a pipe has them
	answer, err := io.ReadAll(io.LimitReader(said, 64))
	if err == nil && len(answer) == 0 {
		return nil
	}
	_ = cmd.Process.Kill()
	if err != nil {
		go func() { _ = cmd.Wait() }() // it may be where no signal reaches it
		return fmt.Errorf("%s did not start within %v", program, limit)
	}
	_ = cmd.Wait() // it says that it failed, and how is known
	return failure(string(answer), program, dir)
}

// Copy returns a command that runs this program again, to be started by [Start]: with
// the arguments, in an empty environment, below no directory. A package of this program
// notices by the first argument that it runs in the copy.
func Copy(args ...string) *exec.Cmd {
	return &exec.Cmd{Path: reexec.Self, Args: args, Dir: "/", Env: []string{}}
}

// rewrite makes cmd start a copy of this program, which reports to say.
func rewrite(cmd *exec.Cmd, say *os.File) {
	if cmd.Env == nil {
		cmd.Env = cmd.Environ() // which names the directory
	}
	var ids []uint32
	if c := credential(cmd); c != nil {
		ids = append([]uint32{c.Uid, c.Gid}, c.Groups...)
	}
	args := []string{reexec.Name, strconv.Itoa(3 + len(cmd.ExtraFiles)), cmd.Dir, strconv.Itoa(len(ids))}
	for _, id := range ids {
		args = append(args, strconv.FormatUint(uint64(id), 10))
	}
	interpose(cmd, self, append(append(args, cmd.Path), cmd.Args...), veil(cmd.Env), say)
}

// credential returns the user's rights, nil for those of this process.
func credential(cmd *exec.Cmd) *syscall.Credential {
	if cmd.SysProcAttr == nil {
		return nil
	}
	return cmd.SysProcAttr.Credential
}

// interpose makes cmd start another program first, with the rights of this process and with
// files behind those of cmd. That takes on the user's rights and changes the directory.
func interpose(cmd *exec.Cmd, path string, args, env []string, files ...*os.File) {
	attr := syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr
	}
	attr.Credential = nil
	cmd.SysProcAttr = &attr
	cmd.ExtraFiles = append(slices.Clone(cmd.ExtraFiles), files...)
	cmd.Path, cmd.Args, cmd.Env = path, args, env
	if cmd.Dir != "" {
		cmd.Dir = "/"
	}
}

// veil renames the variables of an environment. The copy has this process's rights at
// first, and neither its loader nor its runtime may obey the variables of the program
// alone (LD_PRELOAD, GODEBUG). The copy takes the renaming back.
func veil(env []string) []string {
	veiled := make([]string, len(env))
	for i, v := range env {
		veiled[i] = reexec.Veil + v
	}
	return veiled
}

// copyFailure is the error in the report of a copy.
func copyFailure(report, program, dir string) error {
	step, number, _ := strings.Cut(report, " ")
	code, err := strconv.Atoi(number)
	if err != nil {
		return fmt.Errorf("starting %s: %q", program, report)
	}
	return failed(step, syscall.Errno(code), program, dir)
}

// failed is the error of a step on the way to a program.
func failed(step string, code syscall.Errno, program, dir string) error {
	path := program
	if step == reexec.StepDir {
		path = dir
	}
	return &fs.PathError{Op: step, Path: path, Err: code}
}
