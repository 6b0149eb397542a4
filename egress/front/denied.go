package front

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Denial is a connection that the policy refused.
type Denial struct {
	Time   time.Time
	Host   string
	Port   uint16
	Reason string
	// Process is the name of the client's process, or "".
	Process string
	// Client and Front are the ends of the client's connection to the front.
	Client, Front netip.AddrPort
}

const maxDenials = 1000

// denials are the latest ones. The zero value has none.
type denials struct {
	mu   sync.Mutex
	list []Denial // the oldest first
}

func (d *denials) add(one Denial) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.list) == 2*maxDenials {
		d.list = append(d.list[:0], d.list[maxDenials:]...)
	}
	d.list = append(d.list, one)
}

func (d *denials) all() []Denial {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list[max(0, len(d.list)-maxDenials):])
}

// deny records a denial while the client waits for its answer.
func (f *Front) deny(c *client, host string, port uint16, reason string) {
	d := Denial{Time: time.Now(), Host: host, Port: port, Reason: reason, Client: addrPort(c.RemoteAddr()), Front: addrPort(c.LocalAddr())}
	if f.cfg.Denied != nil {
		d.Process = f.cfg.Denied(d)
	}
	f.denials.add(d)
	f.metrics.Denied(reason)
}
