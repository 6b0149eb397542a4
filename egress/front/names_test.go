package front_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/egress/front"
)

// closed is a listener that counts.
type closed struct {
	net.Listener
	open *int
}

func (c closed) Close() error {
	*c.open--
	return nil
}

// table returns names with listeners that are none, and how many are open.
func table(tb testing.TB) (names front.Names, open *int) {
	tb.Helper()
	open = new(int)
	names = front.NewNames(func(netip.AddrPort) (net.Listener, error) {
		*open++
		return closed{open: open}, nil
	})
	tb.Cleanup(names.Close)
	return names, open
}

// TestAttackNamesFlood: there are at most 128 names and 512 listeners, and those in use stay.
func TestAttackNamesFlood(t *testing.T) {
	t.Parallel()
	names, open := table(t)
	now := time.Now()
	ports := []uint16{80, 443, 22}
	addrs := map[netip.Addr]bool{}
	for i := range 128 {
		addr, ok := names.Address(host(t, fmt.Sprintf("n%d.example", i)), ports, now.Add(time.Duration(i)*time.Millisecond))
		if !ok || addrs[addr] || !namesRange.Contains(addr) {
			t.Fatalf("name %d: %v, %v", i, addr, ok)
		}
		addrs[addr] = true
	}
	if _, ok := names.Address(host(t, "more.example"), ports, now.Add(time.Second)); ok {
		t.Error("there are 129 names")
	}
	done := names.Use(host(t, "n0.example")) // as if just now
	if _, ok := names.Address(host(t, "more.example"), ports, now.Add(61*time.Second)); !ok {
		t.Error("no name went after its time")
	}
	count, listeners := names.Count()
	if count != 128 || listeners != 128*3 || *open != listeners {
		t.Errorf("%d names, %d listeners, %d open", count, listeners, *open)
	}
	for i := range 2000 { // an hour later, but for the one in use
		if _, ok := names.Address(host(t, fmt.Sprintf("m%d.example", i)), ports, now.Add(time.Hour+time.Duration(i)*time.Minute)); !ok {
			t.Fatalf("name %d", i)
		}
	}
	done()
	if count, _ := names.Count(); count > 128 {
		t.Errorf("%d names", count)
	}
}

// TestAttackListenersFlood: names with many ports share the listeners.
func TestAttackListenersFlood(t *testing.T) {
	t.Parallel()
	names, open := table(t)
	now := time.Now()
	var ports []uint16
	for port := range uint16(100) {
		ports = append(ports, 1+port)
	}
	for i := range 128 {
		if _, ok := names.Address(host(t, fmt.Sprintf("n%d.example", i)), ports, now); !ok {
			t.Fatalf("name %d", i)
		}
	}
	if _, listeners := names.Count(); listeners != 512 || *open != 512 {
		t.Errorf("%d listeners, %d open", listeners, *open)
	}
	if addr, ok := names.Address(host(t, "n0.example"), ports[:3], now); !ok || !addr.IsValid() {
		t.Errorf("got %v, %v", addr, ok)
	}
	if _, listeners := names.Count(); listeners != 499 {
		t.Errorf("%d listeners after the ports of a name were closed", listeners)
	}
	later := now.Add(2 * time.Minute)
	if _, ok := names.Address(host(t, "n127.example"), ports, later); !ok {
		t.Error("no address")
	}
	if _, listeners := names.Count(); listeners > 512 || listeners != *open {
		t.Errorf("%d listeners, %d open", listeners, *open)
	}
}

// TestNamesIdle: listeners close after ten minutes without a use.
func TestNamesIdle(t *testing.T) {
	t.Parallel()
	names, open := table(t)
	now := time.Now()
	for i, name := range []string{"a.example", "b.example", "c.example"} {
		if _, ok := names.Address(host(t, name), []uint16{80}, now.Add(time.Duration(i)*time.Minute)); !ok {
			t.Fatal(name)
		}
	}
	done := names.Use(host(t, "b.example"))
	names.Clean(now.Add(10*time.Minute - time.Second))
	if count, _ := names.Count(); count != 3 {
		t.Errorf("%d names before their time", count)
	}
	names.Clean(now.Add(11 * time.Minute))
	if count, _ := names.Count(); count != 2 || *open != 2 {
		t.Errorf("%d names, %d open, want those that are in use or were", count, *open)
	}
	done()
	names.Clean(now.Add(time.Hour))
	if count, _ := names.Count(); count != 0 || *open != 0 {
		t.Errorf("%d names, %d open", count, *open)
	}
}

// TestNamesTaken: a port that a program has is its own, until it is free.
func TestNamesTaken(t *testing.T) {
	t.Parallel()
	taken := true
	var opened []uint16
	names := front.NewNames(func(at netip.AddrPort) (net.Listener, error) {
		if taken && at.Port() == 80 {
			return nil, errors.New("address already in use")
		}
		opened = append(opened, at.Port())
		return closed{open: new(int)}, nil
	})
	t.Cleanup(names.Close)
	for range 2 {
		if _, ok := names.Address(host(t, "a.example"), []uint16{80, 443}, time.Now()); !ok {
			t.Error("no address")
		}
		taken = false
	}
	if fmt.Sprint(opened) != "[443 80]" {
		t.Errorf("got %v", opened)
	}
}

// TestPortsOf: the ports of rules about a name come before those of others.
func TestPortsOf(t *testing.T) {
	t.Parallel()
	var many []string
	for port := range 30 {
		many = append(many, fmt.Sprintf(`"other.example:%d"`, 1000+port))
	}
	for _, tc := range []struct {
		policy string
		want   []uint16
	}{
		{`{"mode":"public"}`, []uint16{80, 443, 22}},
		{`{"mode":"allowlist","allow":["b.example:1","*.example:8443","a.example:443","a.example"],"deny":["a.example:25"]}`, []uint16{80, 443, 22, 8443, 25, 1}},
		{`{"mode":"public","deny":["*:25","8.8.8.8:53"]}`, []uint16{80, 443, 22, 25, 53}},
		{`{"mode":"allowlist","allow":[` + strings.Join(many, ",") + `,"a.example:5432"]}`, []uint16{80, 443, 22, 5432, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011}},
	} {
		p, err := egress.ParsePolicy([]byte(tc.policy))
		if err != nil {
			t.Fatal(err)
		}
		s := p.Summary()
		if got := front.PortsOf(&s, host(t, "a.example")); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v", tc.policy, got)
		}
	}
}

func host(tb testing.TB, name string) egress.Host {
	tb.Helper()
	h, err := egress.ParseHost(name)
	if err != nil {
		tb.Fatal(err)
	}
	return h
}
