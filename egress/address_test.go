package egress_test

import (
	"net/netip"
	"testing"

	"github.com/actiond/actiond/egress"
)

// TestAttackAddresses is the table of addresses (rows 10, 11 and 32): own has the addresses of the
// host, and even an operator who opens everything does not open what is never reached.
func TestAttackAddresses(t *testing.T) {
	t.Parallel()
	own := []netip.Addr{netip.MustParseAddr("198.41.0.4"), netip.MustParseAddr("2001:4860::7"), netip.MustParseAddr("10.0.0.7")}
	all := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	const public, private, never = "public", "private", "never"
	for text, want := range map[string]string{
		"8.8.8.8": public, "1.1.1.1": public, "2606:4700::1111": public, "100.63.255.255": public, "172.32.0.1": public,
		"::ffff:8.8.8.8": public,
		"10.0.0.1":       private, "172.16.0.1": private, "172.31.255.255": private, "192.168.1.1": private, "100.64.0.1": private,
		"192.0.0.8": private, "192.0.2.1": private, "198.18.0.1": private, "198.51.100.1": private, "203.0.113.1": private,
		"192.88.99.1": private, "240.0.0.1": private, "fc00::1": private, "fd12::1": private, "fec0::1": private, "100::1": private,
		"64:ff9b::808:808": private, "64:ff9b:1::1": private, "2002:808:808::1": private, "2001::1": private, "2001:db8::1": private,
		"3fff::1": private, "5f00::1": private, "::808:808": private, "::ffff:10.0.0.1": private, "::ffff:0:808:808": private,
		"127.0.0.1": never, "127.255.255.255": never, "::1": never, "::": never, "0.0.0.0": never, "0.1.2.3": never,
		"169.254.169.254": never, "169.254.0.1": never, "fe80::1": never, "224.0.0.1": never, "239.255.255.250": never, "ff02::1": never,
		"255.255.255.255": never, "100.100.100.200": never, "168.63.129.16": never, "fd00:ec2::254": never,
		"fd20:ce::254": never, "fd00:c1::a9fe:a9fe": never,
		"::ffff:127.0.0.1": never, "::ffff:169.254.169.254": never, "64:ff9b::7f00:1": never, "64:ff9b::a9fe:a9fe": never,
		"2002:a9fe:a9fe::1": never, "2002:7f00:1::": never, "::127.0.0.1": never, "::169.254.169.254": never, "fe80::1%eth0": never,
		"2606:4700::1111%eth0": never,
		"198.41.0.4":           never, "::ffff:198.41.0.4": never, "2001:4860::7": never, "10.0.0.7": never, "64:ff9b::a00:7": never,
	} {
		addr := netip.MustParseAddr(text)
		got := never
		switch {
		case egress.Usable(addr, own, nil):
			got = public
		case egress.Usable(addr, own, all):
			got = private
		}
		if got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	if egress.Usable(netip.Addr{}, own, all) {
		t.Error("no address is usable")
	}
}
