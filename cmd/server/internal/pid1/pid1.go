// Package pid1 is the first process of a sandbox whose platform brings none: it starts the server, passes signals on to
// it, starts it again after a crash, and reaps orphans.
//
// It does so before main, and imports little: Go initialises packages in the order of their imports, so most libraries
// of the server are not set up in this process, which saves their time and memory.
package pid1

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/memfile"
)

// passedOn are the signals that PID 1 hands to the server. All but the last two are to end it.
var passedOn = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

const (
	// MaxRestarts is how often a server may crash within restartTime before its sandbox ends.
	MaxRestarts = 5
	restartTime = 10 * time.Minute
	// firstPause comes before the first of these restarts, twice as long a one before the next.
	firstPause = 100 * time.Millisecond
	// endTime is how long PID 1 waits for processes that it killed; one may hang in the kernel.
	endTime = 5 * time.Second
	// CrashedStatus is the exit status of PID 1 after too many crashes of the server. Drivers know it.
	CrashedStatus = 70
	// memoryFD is where the server finds its memory.
	memoryFD = 3
	// reasonFile is where Kubernetes reads why a container ended.
	reasonFile = "/dev/termination-log"
)

// initProcess is PID 1 of a sandbox whose platform brings none.
type initProcess struct {
	args     []string
	told     chan os.Signal // those that are passed on
	exits    chan os.Signal // SIGCHLD
	memory   *memfile.File
	untilEOF bool // it ends with standard input, and all that it started with it
	stopping bool // the server was told to end
	crashes  []time.Time
}

func init() { //nolint:gochecknoinits // see above
	if len(os.Args) < 2 || os.Args[1] != "init" {
		return
	}
	if os.Geteuid() != 0 { // commands have the same user: the key in this environment is not theirs
		_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	}
	// Whatever the launcher left open is not the server's business.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	status, err := run(os.Args[2:])
	if err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "server: %v\n", err)
		status = 1
	}
	syscall.Exit(status)
}

// run starts this program with args, passes signals on to it, and reaps the orphans of
// the sandbox. As PID 1 it starts a server again that crashed after it had begun to serve,
// with the crash state in its memory. Otherwise it returns the server's exit status when that
// ends, 128 and the signal's number if one ended it. All other processes of the container
// end with the server.
func run(args []string) (status int, err error) {
	// Orphans come to it also where it is not PID 1.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("taking in orphans: %w", err)
	}
	memory, err := memfile.New()
	if err != nil {
		return 0, err
	}
	defer memory.Close()
	untilEOF := len(args) > 0 && args[0] == "--until-eof"
	if untilEOF {
		args = args[1:]
	}
	p := &initProcess{
		untilEOF: untilEOF,
		args:     append([]string{os.Args[0]}, args...), memory: memory,
		told: make(chan os.Signal, 16), exits: make(chan os.Signal, 1),
	}
	if os.Getpid() == 1 { // only PID 1 can end all that a dead server leaves
		p.args = append(p.args, "--memory-fd", strconv.Itoa(memoryFD))
	}
	signal.Notify(p.told, passedOn...)
	defer signal.Stop(p.told)
	signal.Notify(p.exits, syscall.SIGCHLD)
	defer signal.Stop(p.exits)
	if untilEOF {
		go p.endWithInput() // ends with this process
	}
	for {
		ended, err := p.serve()
		p.endOthers()
		switch {
		case err != nil && !memory.Written():
			return 0, err
		case err != nil:
		case ended.Signaled():
			status, err = 128+int(ended.Signal()), fmt.Errorf("the server was ended by signal %d, %v", ended.Signal(),
				ended.Signal())
		default:
			status, err = ended.ExitStatus(), fmt.Errorf("the server ended with status %d", ended.ExitStatus())
		}
		if p.stopping || status == 0 || !memory.Written() {
			giveReason("")
			return status, nil
		}
		pause, again := p.crashed(time.Now())
		if !again {
			err = fmt.Errorf("its server crashed %d times within %v, at last: %w", len(p.crashes), restartTime, err)
			giveReason(err.Error())
			_, _ = fmt.Fprintf(os.Stderr, "server: %v\n", err)
			return CrashedStatus, nil
		}
		_, _ = fmt.Fprintf(os.Stderr, "server: %v; it is started again in %v, crash %d of %d within %v\n", err, pause,
			len(p.crashes), MaxRestarts, restartTime)
		if !p.wait(pause) {
			giveReason("")
			return status, nil
		}
	}
}

// serve runs the server until it ends.
func (p *initProcess) serve() (ended unix.WaitStatus, err error) {
	attr := &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, p.memory.OSFile()}}
	if p.untilEOF { // the server does not outlive this process, whose thread is the main one before main
		null, err := os.Open(os.DevNull)
		if err != nil {
			return 0, fmt.Errorf("starting the server: %w", err)
		}
		defer null.Close()
		attr.Files[0], attr.Sys = null, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	server, err := os.StartProcess("/proc/self/exe", p.args, attr)
	if err != nil {
		return 0, fmt.Errorf("starting the server: %w", err)
	}
	defer func() { _ = server.Release() }() // it is reaped below
	for {
		select {
		case s := <-p.told:
			p.note(s)
			_ = server.Signal(s) // it may have ended just now
		case <-p.exits: // of one process or of many
			for pid := 1; pid > 0; {
				var status unix.WaitStatus
				if pid = reapOne(&status); pid == server.Pid {
					return status, nil
				}
			}
		}
	}
}

// reapOne reaps a process that has ended. pid is 0 where none has, and negative where there
// are no processes.
func reapOne(status *unix.WaitStatus) (pid int) {
	for {
		pid, err := unix.Wait4(-1, status, unix.WNOHANG, nil)
		if !errors.Is(err, unix.EINTR) {
			return pid
		}
	}
}

func (p *initProcess) note(s os.Signal) {
	p.stopping = p.stopping || s != syscall.SIGUSR1 && s != syscall.SIGUSR2
}

// endWithInput ends the server when standard input ends: the program that has its other end was ended itself, however
// that came.
func (p *initProcess) endWithInput() {
	_, _ = io.Copy(io.Discard, os.Stdin) // one that cannot be read has ended, too
	p.told <- syscall.SIGTERM
	<-time.After(2 * endTime)
	p.told <- syscall.SIGKILL
}

// killOthers kills all other processes of a container. Where this is not its PID 1, it kills its children: those of a
// process that ends become its own.
func killOthers() {
	if os.Getpid() == 1 {
		_ = unix.Kill(-1, unix.SIGKILL) // there may be none
		return
	}
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // a thread may have ended
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 1 {
				_ = unix.Kill(pid, unix.SIGKILL) // it is not reaped meanwhile
			}
		}
	}
}

// endOthers ends the processes that the server left: shells, and all that they started. As PID 1 the kernel does
// it at once, so no process that forks gets away.
func (p *initProcess) endOthers() {
	if os.Getpid() != 1 && !p.untilEOF {
		return
	}
	for until := time.Now().Add(endTime); time.Now().Before(until); {
		killOthers()
		for pid := 1; pid > 0; {
			if pid = reapOne(nil); pid < 0 {
				return
			}
		}
		select {
		case <-p.exits:
		case s := <-p.told:
			p.note(s)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// crashed counts a crash, and says after which pause the server is started again, if it is.
func (p *initProcess) crashed(now time.Time) (pause time.Duration, again bool) {
	p.crashes = append(slices.DeleteFunc(p.crashes, func(at time.Time) bool { return now.Sub(at) > restartTime }), now)
	return firstPause << (len(p.crashes) - 1), len(p.crashes) <= MaxRestarts
}

// wait returns false if the server would have been told to end meanwhile.
func (p *initProcess) wait(pause time.Duration) bool {
	over := time.NewTimer(pause)
	defer over.Stop()
	for !p.stopping {
		select {
		case s := <-p.told:
			p.note(s)
		case <-over.C:
			return true
		}
	}
	return false
}

// giveReason reports to the platform why the container ends, and overwrites the text that an
// agent wrote there. Every user may write to the file, and no other process is left that could.
func giveReason(text string) {
	if os.Getpid() != 1 {
		return
	}
	file, err := os.OpenFile(reasonFile, os.O_WRONLY|os.O_TRUNC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return // another platform
	}
	_, _ = file.WriteString(text) // it is in the log as well
	_ = file.Close()
}
