package waiting

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/internal/sockets"
	"github.com/actiond/actiond/internal/shorten"
)

const (
	// maxPolled bounds the descriptors of one system call that are looked at.
	maxPolled = 256
	// maxName bounds the name of a file, in bytes.
	maxName = 200
	// maxTable bounds the bytes that are read of the kernel's tables of locks and of Unix sockets.
	maxTable = 1 << 20
)

// link returns the file of a descriptor of the process, as a text that can be printed; "" where
// the descriptor is not open or may not be seen.
func (t thread) link(fd int32) string {
	target, _ := os.Readlink(t.path("fd/" + strconv.Itoa(int(fd))))
	return shorten.Text(proc.Printable(target), maxName)
}

// descriptor returns the state of a thread that waits for events, POLLIN or POLLOUT, of a
// descriptor.
func (t thread) descriptor(fd int32, events int16) state {
	target := t.link(fd)
	reads := events&unix.POLLIN != 0
	switch {
	case target == "":
		return state{reason: Unknown, on: fmt.Sprintf("descriptor %d", fd)}
	case t.isTerminal(target) && reads:
		return state{reason: Input, on: "terminal"}
	case t.isTerminal(target):
		return state{reason: Other, on: "the terminal, which takes no more output"}
	case target == t.target.Stdin && reads:
		return state{reason: Input, on: "standard input"}
	case strings.HasPrefix(target, "socket:"):
		return t.socket(target)
	case strings.HasPrefix(target, "pipe:") && reads:
		return state{reason: Pipe, on: "output of another process"}
	case strings.HasPrefix(target, "pipe:"):
		return state{reason: Pipe, on: "a process that reads its output"}
	case strings.HasPrefix(target, "anon_inode:"):
		return state{reason: Other, on: strings.Trim(strings.TrimPrefix(target, "anon_inode:"), "[]")}
	}
	return t.file(fd, target)
}

// isTerminal reports whether a link leads to the terminal of the target.
func (t thread) isTerminal(target string) bool {
	if t.target.Terminal == "" {
		return false
	}
	if target != "/dev/tty" {
		return target == t.target.Terminal
	}
	// The descriptor is of /dev/tty: the controlling terminal of the process.
	number, err := strconv.Atoi(strings.TrimPrefix(t.target.Terminal, "/dev/pts/"))
	device := uint64(uint32(t.process.Terminal))                                                //nolint:gosec // as the kernel prints it
	return err == nil && unix.Minor(device) == uint32(number) && unix.Major(device) == ptyMajor //nolint:gosec // a number of a terminal
}

// ptyMajor is the first of the device numbers of pseudo terminals.
const ptyMajor = 136

// file returns the state of a thread that waits at a file with a name.
func (t thread) file(fd int32, target string) state {
	var stat unix.Statx_t
	// Attributes that the kernel has cached: the file system may belong to the agent.
	err := unix.Statx(unix.AT_FDCWD, t.path("fd/"+strconv.Itoa(int(fd))), unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &stat)
	if err != nil {
		return state{reason: Unknown, on: target}
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFIFO:
		return state{reason: Pipe, on: target}
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFBLK:
		return state{reason: Disk, on: target}
	}
	return state{reason: Other, on: target}
}

// poll returns the state of a thread in poll(2).
func (t thread) poll(address, count uint64, timed bool) state {
	const size = 8 // a descriptor, events and results
	count = min(count, maxPolled)
	data, err := t.memory(address, count*size)
	if err != nil {
		return state{reason: Unknown, on: "it waits for several files, and the kernel does not say for which"}
	}
	var waits waits
	for ; len(data) >= size; data = data[size:] {
		fd, events := int32(binary.NativeEndian.Uint32(data)), int16(binary.NativeEndian.Uint16(data[4:])) //nolint:gosec // as the kernel takes them
		if fd >= 0 && events&(unix.POLLIN|unix.POLLOUT) != 0 {
			waits.add(t, fd, events)
		}
	}
	return waits.state(timed)
}

// selects returns the state of a thread in select(2).
func (t thread) selects(args [6]uint64) state {
	const word = 8
	count := min(args[0], 1024)
	var waits waits
	for i, events := range []int16{unix.POLLIN, unix.POLLOUT} {
		if args[1+i] == 0 {
			continue
		}
		data, err := t.memory(args[1+i], (count+63)/64*word)
		if err != nil {
			return state{reason: Unknown, on: "it waits for several files, and the kernel does not say for which"}
		}
		for fd := range int32(count) {
			if data[fd/8]&(1<<(fd%8)) != 0 && waits.count < maxPolled {
				waits.add(t, fd, events)
			}
		}
	}
	return waits.state(args[4] != 0)
}

// epoll returns the state of a thread in epoll_wait(2).
func (t thread) epoll(fd int32, timed bool) state {
	data, err := t.read("fdinfo/" + strconv.Itoa(int(fd)))
	if err != nil {
		return state{reason: Unknown, on: "it waits for several files, and the kernel does not say for which"}
	}
	var waits waits
	for line := range bytes.Lines(data) {
		fields := bytes.Fields(line)
		if len(fields) < 4 || string(fields[0]) != "tfd:" || waits.count >= maxPolled {
			continue
		}
		watched, err1 := strconv.ParseInt(string(fields[1]), 10, 32)
		events, err2 := strconv.ParseUint(string(fields[3]), 16, 32)
		if err1 == nil && err2 == nil && events&(unix.POLLIN|unix.POLLOUT) != 0 {
			waits.add(t, int32(watched), int16(events&(unix.POLLIN|unix.POLLOUT)))
		}
	}
	return waits.state(timed)
}

// waits are the things that one system call waits for.
type waits struct {
	count int
	all   []state
	own   map[string]fs.FileMode // which ends the process itself has of each pipe
}

func (w *waits) add(t thread, fd int32, events int16) {
	if w.count++; time.Now().After(t.until) {
		return // each socket costs a reading of the kernel's tables
	}
	if w.own == nil {
		w.own = t.pipes()
	}
	if w.own[t.link(fd)] == bothEnds {
		return // by which it wakes itself
	}
	now := t.descriptor(fd, events)
	if now.reason == Other && (now.on == "eventfd" || now.on == "eventpoll") {
		return // the same
	}
	if now.reason == Other && now.on == "timerfd" {
		now = state{reason: Sleeping}
	}
	w.all = append(w.all, now)
}

// state puts them together.
func (w *waits) state(timed bool) state {
	first := state{reason: Other, on: "a signal"}
	if timed {
		first = state{reason: Sleeping}
	}
	for i, now := range w.all {
		if i == 0 {
			first = now
			continue
		}
		if rank(now.reason) < rank(first.reason) {
			first, now = now, state{reason: first.reason, or: first.or}
		}
		first.or = append(first.or, append(now.or, now.reason)...)
	}
	first.timer = timed && first.reason != Sleeping
	return first
}

// bothEnds are the permissions of a link to a descriptor that reads and writes.
const bothEnds = fs.FileMode(0o600)

// pipes returns which ends the process has of each pipe.
func (t thread) pipes() map[string]fs.FileMode {
	own := map[string]fs.FileMode{}
	dir, err := os.Open(t.path("fd"))
	if err != nil {
		return own
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(4 * maxPolled)
	for _, name := range names {
		path := t.path("fd/" + name)
		if target, _ := os.Readlink(path); strings.HasPrefix(target, "pipe:") && target != t.target.Stdin {
			if info, err := os.Lstat(path); err == nil {
				own[target] |= info.Mode() & bothEnds
			}
		}
	}
	return own
}

// memory reads the arguments of a system call in the memory of the process.
func (t thread) memory(address, size uint64) ([]byte, error) {
	file, err := os.Open(t.path("mem"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data := make([]byte, size)
	n, err := file.ReadAt(data, int64(address)) //nolint:gosec // the kernel refuses what is no address
	if n < len(data) {
		return nil, err
	}
	return data, nil
}

// lock completes a state with the process that holds the lock for which another one
// waits (proc_locks(5)).
func (t thread) lock(name string, now state) state {
	now.on = name
	file, err := os.Open("/proc/locks")
	if err != nil {
		return now
	}
	defer func() { _ = file.Close() }()
	holders := map[string]int{}
	lines := bufio.NewScanner(io.LimitReader(file, maxTable))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) > 5 && fields[1] == "->":
			if fields[5] == strconv.Itoa(t.pid) {
				now.holder = holders[fields[0]]
			}
		case len(fields) > 4:
			holders[fields[0]], _ = strconv.Atoi(fields[4])
		}
	}
	return now
}

// socket returns the state of a thread that waits at a socket.
func (t thread) socket(target string) state {
	inode, err := strconv.ParseUint(strings.Trim(strings.TrimPrefix(target, "socket:"), "[]"), 10, 64)
	if err != nil {
		return state{reason: Unknown, on: target}
	}
	for _, protocol := range []string{"tcp", "tcp6", "udp", "udp6"} {
		if s, ok := t.find(protocol, inode); ok {
			protocol = strings.TrimSuffix(protocol, "6")
			switch {
			case protocol == "tcp" && s.State == sockets.Listening:
				return state{reason: Connection, on: fmt.Sprintf("port %d", s.Local.Port())}
			case s.Remote.Port() == 0:
				return state{reason: Network, on: fmt.Sprintf("%s port %d", protocol, s.Local.Port())}
			}
			return state{reason: Network, on: protocol + " " + s.Remote.String()}
		}
	}
	if data, err := readStart(fmt.Sprintf("/proc/%d/net/unix", t.pid), maxTable); err == nil {
		for line := range bytes.Lines(data) {
			if fields := strings.Fields(string(line)); len(fields) > 6 && fields[6] == strconv.FormatUint(inode, 10) {
				const listens = "00010000" // __SO_ACCEPTCON
				if fields[3] == listens {
					return state{reason: Connection, on: "a Unix socket"}
				}
				return state{reason: Network, on: "a Unix socket"}
			}
		}
	}
	return state{reason: Network, on: "a socket"}
}

// find looks for a socket in a table of the process's network.
func (t thread) find(protocol string, inode uint64) (found sockets.Socket, ok bool) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", t.pid, protocol))
	if err != nil {
		return found, false
	}
	defer func() { _ = file.Close() }()
	_ = sockets.Read(file, func(s sockets.Socket) bool {
		if s.Inode == inode {
			found, ok = s, true
		}
		return !ok
	})
	return found, ok
}
