package front

import (
	"net"
	"net/netip"
	"time"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/internal/httpserver"
)

// StartWithin is Start with another limit for headers.
func StartWithin(cfg Config, headerTime time.Duration) (*Front, error) {
	return start(cfg, headerTime, listenTCP)
}

// StartListening is Start with other listeners of names.
func StartListening(cfg Config, listen func(netip.AddrPort) (net.Listener, error)) (*Front, error) {
	return start(cfg, httpserver.HeaderTime, listen)
}

// Resolver returns the address of the resolver.
func (f *Front) Resolver() netip.AddrPort { return addrPort(f.resolver.tcp.Addr()) }

// AnswerQuery is answerQuery.
var AnswerQuery = answerQuery

// PortsOf is portsOf.
func PortsOf(p *egress.Summary, host egress.Host) []uint16 { return portsOf(p, host) }

// Names are names without a server.
type Names struct{ *names }

// NewNames returns names whose listeners listen opens.
func NewNames(listen func(netip.AddrPort) (net.Listener, error)) Names {
	return Names{newNames(listen, func(net.Listener, *name, uint16) {})}
}

// Address is address.
func (n Names) Address(host egress.Host, ports []uint16, now time.Time) (netip.Addr, bool) {
	return n.address(host, ports, now)
}

// Clean is clean.
func (n Names) Clean(now time.Time) { n.clean(now) }

// Close is close.
func (n Names) Close() { n.close() }

// Use is use.
func (n Names) Use(host egress.Host) (done func()) {
	n.mu.Lock()
	found := n.byHost[host]
	n.mu.Unlock()
	return n.use(found)
}

// Count returns how many names and listeners there are.
func (n Names) Count() (names, listeners int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.byHost), n.listeners
}

// Denials are denials.
type Denials struct{ denials }

// NewDenials returns denials without any.
func NewDenials() *Denials { return &Denials{} }

// Add is add.
func (d *Denials) Add(one Denial) { d.add(one) }

// All is all.
func (d *Denials) All() []Denial { return d.all() }

// Refuse lets no further work begin, as Close does first, and returns the rest of Close.
func (f *Front) Refuse() (rest func()) {
	f.running.Close()
	return f.stop
}

// OpenedSince is openSince.
func (f *Front) OpenedSince(since time.Time) bool { return f.opened.openSince(since) }

// OpenAndClose notes connections whose TLS is opened, and their ends, and returns how many are kept.
func OpenAndClose(n int) int {
	var o opened
	for i := range n {
		o.enter(int64(i), nil)()
	}
	return len(o.clients)
}
