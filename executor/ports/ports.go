// Package ports finds the TCP ports that processes of this sandbox listen on, and
// connects to them over the loopback interface.
package ports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"

	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/internal/identity"
)

// Errors of Dial.
var (
	// ErrNotListening reports that no process of the sandbox listens on the port.
	ErrNotListening = errors.New("no process of the sandbox listens on it")
	// ErrOwn reports that this program listens on the port.
	ErrOwn = errors.New("it is the server's own")
	// ErrNotLoopback reports that the port cannot be reached over the loopback
	// interface, or that a process outside of the sandbox might answer there.
	ErrNotLoopback = errors.New("it is not on the loopback interface: listen on 127.0.0.1 or 0.0.0.0")
)

const (
	// dialTime bounds a connection to a port, which takes no time unless the
	// listener's queue is full.
	dialTime = 5 * time.Second
	// maxPorts bounds a list.
	maxPorts = 1024
)

// Port is a port that a process of the sandbox listens on.
type Port struct {
	Port      uint16
	Addresses []netip.Addr // sorted
	PID       int          // the lowest one, where several processes share the port
	Process   string       // the name of the process
	Command   string       // its command line, at most 256 bytes; "" where it cannot be read
	Forwards  bool         // Dial connects to it
}

// Finder finds ports. Its methods may be called concurrently.
//
// The processes of the sandbox are the descendants of this program, and the
// processes of User whose environment has Mark: a daemon has another parent.
type Finder struct {
	// User is the user that commands run as; nil means the user of this program.
	User *identity.User
	// Mark is a variable "NAME=VALUE" of the environment that commands start with.
	Mark string

	mu sync.Mutex // scans of /proc take turns
}

// List returns the ports in ascending order, at most 1,024.
func (f *Finder) List() ([]Port, error) {
	sockets, err := listening(0)
	if err != nil {
		return nil, err
	}
	owners, own := f.owners(sockets)
	byPort := map[uint16][]socket{}
	for _, s := range sockets {
		byPort[s.at.Port()] = append(byPort[s.at.Port()], s)
	}
	list := []Port{}
	for number, there := range byPort {
		targets, err := choose(there, owners, own)
		if errors.Is(err, ErrOwn) || errors.Is(err, ErrNotListening) {
			continue
		}
		list = append(list, describe(number, there, owners, len(targets) > 0))
	}
	slices.SortFunc(list, func(a, b Port) int { return cmp.Compare(a.Port, b.Port) })
	return list[:min(len(list), maxPorts)], nil
}

// describe returns the entry of a port. owners has the process of at least one of
// its sockets.
func describe(number uint16, sockets []socket, owners map[uint64]int, forwards bool) Port {
	p := Port{Port: number, Forwards: forwards}
	for _, s := range sockets {
		if pid, ok := owners[s.inode]; ok {
			p.Addresses = append(p.Addresses, s.at.Addr())
			if p.PID == 0 || pid < p.PID {
				p.PID = pid
			}
		}
	}
	slices.SortFunc(p.Addresses, netip.Addr.Compare)
	p.Addresses = slices.Compact(p.Addresses)
	if process, err := procfs.NewProc(p.PID); err == nil {
		p.Process, _ = process.Comm() // "" where the process is gone meanwhile
		p.Process = strings.ToValidUTF8(p.Process, "\uFFFD")
	}
	p.Command = proc.CommandLine(p.PID)
	return p
}

// errChanged says that another socket began or ceased to listen on the port number.
var errChanged = fmt.Errorf("%w: its listener has just changed", ErrNotListening)

// Dial connects to a port. ctx bounds the wait. The error wraps ErrNotListening,
// ErrOwn or ErrNotLoopback, or is that of the connection.
func (f *Finder) Dial(ctx context.Context, port uint16) (conn *net.TCPConn, err error) {
	if port == 0 {
		return nil, fmt.Errorf("port 0: %w", ErrNotListening)
	}
	const tries = 3 // the change may be that of another address
	for range tries {
		if conn, err = f.dial(ctx, port); !errors.Is(err, errChanged) {
			break
		}
	}
	return conn, err
}

func (f *Finder) dial(ctx context.Context, port uint16) (*net.TCPConn, error) {
	before, err := listening(port)
	if err != nil {
		return nil, err
	}
	owners, own := f.owners(before)
	targets, err := choose(before, owners, own)
	if err != nil {
		return nil, fmt.Errorf("port %d: %w", port, err)
	}
	dialer := net.Dialer{Timeout: dialTime}
	var conn net.Conn
	for _, target := range targets {
		if conn, err = dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(target, port).String()); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to port %d: %w", port, err)
	}
	// Another process may have taken the port since the look at it.
	if after, err := listening(port); err != nil || !slices.Equal(before, after) {
		_ = conn.Close()
		return nil, errors.Join(err, fmt.Errorf("port %d: %w", port, errChanged))
	}
	return conn.(*net.TCPConn), nil //nolint:forcetypeassert // the network is tcp
}

// choose returns the loopback addresses that reach the sandbox's sockets among those
// that listen on one port, in the order in which they are to be tried.
func choose(sockets []socket, owners map[uint64]int, own map[uint64]bool) ([]netip.Addr, error) {
	var ours, others []netip.Addr
	for _, s := range sockets {
		_, member := owners[s.inode]
		switch {
		case own[s.inode] && s.at.Addr().Is4() && s.at.Addr().IsLoopback() && s.at.Addr() != loopback4:
			// It conflicts with no other: the server listens there instead of a host.
		case own[s.inode]:
			return nil, ErrOwn
		case member:
			ours = append(ours, s.at.Addr())
		default:
			others = append(others, s.at.Addr())
		}
	}
	if len(ours) == 0 {
		return nil, ErrNotListening
	}
	var targets []netip.Addr
	for _, address := range ours {
		for _, target := range loopback(address) {
			reached := func(other netip.Addr) bool { return slices.Contains(loopback(other), target) }
			if !slices.Contains(targets, target) && !slices.ContainsFunc(others, reached) {
				targets = append(targets, target)
			}
		}
	}
	if len(targets) == 0 {
		return nil, ErrNotLoopback
	}
	return targets, nil
}

var (
	loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	loopback6 = netip.IPv6Loopback()
)

// loopback returns the loopback addresses at which a socket on an address may be
// reached. A socket on "::" may take IPv4 too.
func loopback(address netip.Addr) []netip.Addr {
	address = address.Unmap()
	switch {
	case address.IsLoopback():
		return []netip.Addr{address}
	case address.IsUnspecified() && address.Is4():
		return []netip.Addr{loopback4}
	case address.IsUnspecified():
		return []netip.Addr{loopback6, loopback4}
	}
	return nil
}

// owners returns which process of the sandbox holds which of the sockets, by inode,
// and which of them this program holds.
func (f *Finder) owners(sockets []socket) (owners map[uint64]int, own map[uint64]bool) {
	owners, own = map[uint64]int{}, map[uint64]bool{}
	if len(sockets) == 0 {
		return owners, own
	}
	wanted := map[uint64]bool{}
	for _, s := range sockets {
		wanted[s.inode] = true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, inode := range heldBy(os.Getpid(), wanted) {
		own[inode] = true
	}
	members := proc.Members(os.Getpid(), f.Mark, f.User)
	look := func() error {
		for _, pid := range members {
			for _, inode := range heldBy(pid, wanted) {
				if first, ok := owners[inode]; !ok || pid < first {
					owners[inode] = pid
				}
			}
		}
		return nil
	}
	// The descriptors of a process can be read with its user's rights. Some members
	// have those of this program.
	_ = look()
	if f.User.Credential() != nil {
		_ = f.User.Do(look) // an error says that nothing was looked at
	}
	return owners, own
}

// maxDescriptors bounds how many descriptors of a process are looked at.
const maxDescriptors = 1 << 16

// heldBy returns which of the sockets a process has open; none where its descriptors
// cannot be read.
func heldBy(pid int, wanted map[uint64]bool) []uint64 {
	dir, err := os.Open("/proc/" + strconv.Itoa(pid) + "/fd")
	if err != nil {
		return nil
	}
	defer func() { _ = dir.Close() }()
	var held []uint64
	for range maxDescriptors / 1024 {
		names, err := dir.Readdirnames(1024)
		for _, name := range names {
			target, _ := os.Readlink(dir.Name() + "/" + name)
			if text, ok := strings.CutPrefix(target, "socket:["); ok {
				inode, _ := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
				if wanted[inode] {
					held = append(held, inode)
				}
			}
		}
		if err != nil {
			break
		}
	}
	return held
}
