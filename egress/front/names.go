package front

import (
	"encoding/binary"
	"hash/fnv"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/actiond/actiond/egress"
)

// Limits of names.
const (
	maxNames     = 128
	maxListeners = 512 // of all names
	maxPorts     = 16  // of a name
	// nameTime is how long a name keeps its address although others wait for one.
	nameTime = time.Minute
	// namesIdle is how long the listeners of a name stay open without a query or a connection.
	namesIdle = 10 * time.Minute
)

// nameRange is where the addresses of names are: on the loopback interface, like all of 127.0.0.0/8.
var nameRange = netip.MustParsePrefix("127.64.0.0/10")

// namePorts are those that each name listens on.
var namePorts = []uint16{80, 443, 22}

// names are the host names that programs have looked up. Each has an address, at which a connection
// becomes one to the name. Its methods may be called concurrently.
type names struct {
	// listen opens a listener of a name.
	listen func(at netip.AddrPort) (net.Listener, error)
	// serve takes connections until the listener is closed.
	serve func(l net.Listener, n *name, port uint16)

	mu        sync.Mutex
	closed    bool
	byHost    map[egress.Host]*name
	byAddr    map[netip.Addr]*name
	listeners int
	sweep     *time.Timer // at the end of a name's idle time; nil without names
}

// name is a host name with an address. The mu of names guards its fields.
type name struct {
	host      egress.Host
	addr      netip.Addr
	used      time.Time // when a program last looked it up, or a connection began or ended
	open      int       // connections
	listeners map[uint16]net.Listener
}

func newNames(listen func(netip.AddrPort) (net.Listener, error), serve func(net.Listener, *name, uint16)) *names {
	return &names{listen: listen, serve: serve, byHost: map[egress.Host]*name{}, byAddr: map[netip.Addr]*name{}}
}

// address returns the address of a host, which listens on the ports as far as they are free: while a
// program of the sandbox listens on all addresses of one, that one is its. It returns false where
// there are too many names in use.
func (t *names) address(host egress.Host, ports []uint16, now time.Time) (netip.Addr, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return netip.Addr{}, false
	}
	n := t.byHost[host]
	if n == nil {
		if len(t.byHost) >= maxNames && !t.evict(now, func(*name) bool { return true }) {
			return netip.Addr{}, false
		}
		n = &name{host: host, addr: t.free(host), listeners: map[uint16]net.Listener{}}
		t.byHost[host], t.byAddr[n.addr] = n, n
	}
	n.used = now
	t.open(n, ports, now)
	if t.sweep == nil {
		t.sweep = time.AfterFunc(namesIdle, func() { t.clean(time.Now()) })
	}
	return n.addr, true
}

// free returns an address of a host that no other name has. It is the same each time, if it can be:
// programs keep addresses for longer than they should, and a server that was replaced knows none.
func (t *names) free(host egress.Host) netip.Addr {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(host.String())) // never fails
	first, count := binary.BigEndian.Uint32(nameRange.Addr().AsSlice()), uint32(1)<<(32-nameRange.Bits())
	for at := hash.Sum32(); ; at++ {
		offset := at % count
		addr := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, first|offset)))
		if t.byAddr[addr] == nil {
			return addr
		}
	}
}

// open opens the listeners of a name, and closes those of ports that it no longer has.
func (t *names) open(n *name, ports []uint16, now time.Time) {
	ports = ports[:min(len(ports), maxPorts)]
	for port := range n.listeners {
		if !slices.Contains(ports, port) {
			t.shut(n, port)
		}
	}
	for _, port := range ports {
		if n.listeners[port] != nil {
			continue
		}
		if t.listeners >= maxListeners && !t.evict(now, func(other *name) bool { return other != n && len(other.listeners) > 0 }) {
			return
		}
		l, err := t.listen(netip.AddrPortFrom(n.addr, port))
		if err != nil {
			continue // a program has the port; the next query tries again
		}
		n.listeners[port] = l
		t.listeners++
		t.serve(l, n, port)
	}
}

func (t *names) shut(n *name, port uint16) {
	_ = n.listeners[port].Close()
	delete(n.listeners, port)
	t.listeners--
}

// evict removes that of the eligible names that was not used for the longest time, if that is at
// least nameTime. It returns false otherwise.
func (t *names) evict(now time.Time, eligible func(*name) bool) bool {
	var oldest *name
	for _, n := range t.byHost {
		if n.open == 0 && eligible(n) && (oldest == nil || n.used.Before(oldest.used)) {
			oldest = n
		}
	}
	if oldest == nil || now.Sub(oldest.used) < nameTime {
		return false
	}
	t.remove(oldest)
	return true
}

func (t *names) remove(n *name) {
	for port := range n.listeners {
		t.shut(n, port)
	}
	delete(t.byHost, n.host)
	delete(t.byAddr, n.addr)
}

// clean removes the names that were not used for namesIdle, and comes again when the next one may be
// due.
func (t *names) clean(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := now.Add(namesIdle)
	for _, n := range t.byHost {
		due := n.used.Add(namesIdle)
		switch {
		case n.open > 0:
		case !due.After(now):
			t.remove(n)
		case due.Before(next):
			next = due
		}
	}
	if t.sweep == nil || t.closed {
		return
	}
	if len(t.byHost) == 0 {
		t.sweep = nil
		return
	}
	t.sweep.Reset(next.Sub(now))
}

// use counts a connection of a name until done is called.
func (t *names) use(n *name) (done func()) {
	count := func(by int) {
		t.mu.Lock()
		defer t.mu.Unlock()
		n.open += by
		n.used = time.Now()
	}
	count(1)
	return func() { count(-1) }
}

// close closes all listeners, and opens no other.
func (t *names) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.sweep != nil {
		t.sweep.Stop()
	}
	for _, n := range t.byHost {
		t.remove(n)
	}
}

// portsOf returns the ports at which a name listens under a policy: the usual ones, and those that
// rules name, first the rules about the name itself. A denied name has them, too, so that its
// connections are refused in words.
func portsOf(p *egress.Summary, host egress.Host) []uint16 {
	ports := slices.Clone(namePorts)
	add := func(matching bool) {
		for _, rules := range [][]egress.Rule{p.Allow, p.Deny} {
			for _, r := range rules {
				port := r.Port()
				if len(ports) < maxPorts && port != 0 && r.Matches(host, port) == matching && !slices.Contains(ports, port) {
					ports = append(ports, port)
				}
			}
		}
	}
	add(true)
	add(false)
	return ports
}

// listenTCP listens at an address of a name.
func listenTCP(at netip.AddrPort) (net.Listener, error) {
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return nil, err // and no listener that is a nil pointer
	}
	return l, nil
}
