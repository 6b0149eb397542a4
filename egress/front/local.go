package front

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/egress"
)

// Programs ask the proxy for servers of the sandbox itself: some know no no_proxy, and others compare only some
// spellings of the loopback interface. The front connects them, to the loopback interface alone and without
// looking a name up, so that nothing outside is reached. It neither connects to itself, nor to the addresses
// of names, which are for programs that know no proxy.

const (
	hostsFile = "/etc/hosts"
	maxHosts  = 64 << 10 // bytes of it that are read
)

// localAddrs returns the addresses of the loopback interface that a host means; none where it may be elsewhere.
func (f *Front) localAddrs(host egress.Host, port uint16) []netip.Addr {
	if port == f.Address().Port() {
		return nil
	}
	text := host.String()
	addr, err := netip.ParseAddr(text)
	if err == nil {
		return onlyLocal([]netip.Addr{addr})
	}
	if isLocalhost(text) {
		return []netip.Addr{loopback4, loopback6}
	}
	if own, err := os.Hostname(); err == nil && strings.EqualFold(own, text) {
		return []netip.Addr{loopback4}
	}
	return onlyLocal(hostsOf(f.cfg.Hosts, text))
}

func onlyLocal(addrs []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool {
		return !a.IsLoopback() && !a.IsUnspecified() || nameRange.Contains(a)
	})
}

// isLocalhost reports whether a name is one of the loopback interface (RFC 6761).
func isLocalhost(name string) bool {
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// hostsOf returns the addresses of a name in a list of hosts, which must be root's or this process's user's.
func hostsOf(file, name string) (found []netip.Addr) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !ok || stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return nil
	}
	for lines := bufio.NewScanner(io.LimitReader(f, maxHosts)); lines.Scan(); {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		same := func(other string) bool { return strings.EqualFold(strings.TrimSuffix(other, "."), name) }
		if len(fields) < 2 || !slices.ContainsFunc(fields[1:], same) {
			continue
		}
		if addr, err := netip.ParseAddr(fields[0]); err == nil {
			found = append(found, addr.Unmap())
		}
	}
	return found
}

// openLocal connects to a server of the sandbox. The error is a *refusal.
func (f *Front) openLocal(ctx context.Context, addrs []netip.Addr, host egress.Host, port uint16) (*tunnel, error) {
	dialer := net.Dialer{Timeout: askTime}
	reason := ""
	for _, addr := range addrs {
		conn, err := dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(addr, port).String())
		if err == nil {
			return &tunnel{halfConn: conn.(halfConn), local: true}, nil //nolint:forcetypeassert // it is TCP
		}
		if number, ok := errors.AsType[syscall.Errno](err); ok && reason == "" {
			reason = ": " + number.Error()
		}
	}
	return nil, &refusal{status: http.StatusBadGateway, text: "cannot reach " + host.Join(port) + " in this sandbox" + reason + "\n"}
}
