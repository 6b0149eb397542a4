// Package reexec is the other half of [proc.Start]: the work of a copy of this program
// before it is another one.
//
// It is a package of its own, and does without package strings, because Go sets
// packages up in the order of their imports: so it is done before the libraries
// have begun, which takes a copy 1.5 ms where all of them take 2.8.
package reexec

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// Name is the name of this program while it is about to execute another. The
// arguments after it are the descriptor to report a failure on, the directory, how many
// ids there are, those of the user, the group and further groups, the program, and
// its arguments with its name.
const Name = "actiond-spawn"

// Self as the program makes the copy remain this program, with the user's
// rights and with the arguments that follow.
const Self = "self"

// Veil is put before the name of each variable of the environment until this program
// has executed another.
const Veil = "\x01"

// The steps, as a failure names them, with the number of the error after it.
const (
	StepRights = "setuid"
	StepDir    = "chdir"
	StepExec   = "exec"
)

// A copy of this program becomes another one before anything else happens.
func init() { //nolint:gochecknoinits // see above; and in tests there is no other place for it
	if len(os.Args) > 5 && os.Args[0] == Name {
		execProgram(os.Args[1:])
	}
}

// execProgram turns this process into the program, or reports why not and ends it.
func execProgram(args []string) {
	report, err := strconv.Atoi(args[0])
	if err != nil {
		syscall.Exit(2)
	}
	syscall.CloseOnExec(report)
	resetSignals(syscall.SIGINT, syscall.SIGHUP)
	raiseOOMScore()
	step, err := turnInto(args[1], args[2:])
	if err == nil { // it stays what it is
		_ = syscall.Close(report)
		return
	}
	code := syscall.EINVAL
	_ = errors.As(err, &code)
	_, _ = syscall.Write(report, []byte(step+" "+strconv.Itoa(int(code))))
	syscall.Exit(127)
}

// resetSignals restores the default dispositions of signals that the parent of the
// server ignored, as nohup and scripts do: a program that inherited them would ignore C-c.
func resetSignals(signals ...syscall.Signal) {
	var standard [64]byte // a struct sigaction with SIG_DFL
	const setSize = 8     // of a sigset_t
	for _, s := range signals {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&standard)), 0, setSize, 0, 0) //nolint:gosec // the kernel reads it
	}
}

// OOMScore is the highest there is (proc(5), oom_score_adj): a process that has it counts as
// if all of the memory were its own. A smaller one would not do: memory that the process
// fills and does not map is not counted as its own.
const OOMScore = "1000"

// raiseOOMScore makes the kernel end this process, and all that it starts, before the server when memory runs
// out. Where it cannot be done the kernel goes by size alone.
func raiseOOMScore() {
	f, err := os.OpenFile("/proc/self/oom_score_adj", os.O_WRONLY, 0)
	if err != nil {
		return
	}
	_, _ = f.WriteString(OOMScore)
	_ = f.Close()
}

// turnInto returns only where a step fails, or the program is Self.
func turnInto(dir string, args []string) (step string, err error) {
	ids, program, err := numbers(args)
	if err == nil && len(ids) > 0 {
		err = takeOn(ids)
	}
	if err != nil {
		return StepRights, err
	}
	if dir != "" {
		if err := syscall.Chdir(dir); err != nil {
			return StepDir, err
		}
	}
	if program[0] == Self {
		os.Args = program[1:]
		return StepExec, nil
	}
	return StepExec, syscall.Exec(program[0], program[1:], unveil(os.Environ())) //nolint:gosec // what was asked for
}

// unveil drops the variables that came without a veil.
func unveil(env []string) []string {
	var own []string
	for _, v := range env {
		if len(v) > len(Veil) && v[:len(Veil)] == Veil {
			own = append(own, v[len(Veil):])
		}
	}
	return own
}

// numbers takes a list of ids off the arguments.
func numbers(args []string) (ids []int, rest []string, err error) {
	count, err := strconv.Atoi(args[0])
	if err != nil || count < 0 || count == 1 || count > len(args)-3 {
		return nil, nil, syscall.EINVAL
	}
	for _, arg := range args[1 : 1+count] {
		id, err := strconv.ParseUint(arg, 10, 32)
		if err != nil {
			return nil, nil, err
		}
		ids = append(ids, int(id))
	}
	return ids, args[1+count:], nil
}

// takeOn gives this process the rights of a user, for good.
func takeOn(ids []int) error {
	err := syscall.Setgroups(ids[2:])
	if err == nil {
		err = syscall.Setgid(ids[1])
	}
	if err == nil {
		err = syscall.Setuid(ids[0])
	}
	return err
}
