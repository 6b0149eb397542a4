package egress

import (
	"net/netip"
	"slices"
)

// never are the ranges that no rule opens: they lead to the host of the egress proxy, its
// neighbors on the link, or the metadata of a cloud, which has credentials.
var never = prefixes(
	"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32", "::/127", "fe80::/10", "ff00::/8",
	"100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::254/128", // Alibaba's, Azure's and Amazon's metadata
	"fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128", // Google's and Oracle's
)

// private are the ranges that only an operator opens: IANA's registries of special-purpose
// addresses (RFC 6890). Of IPv6, all but 2000::/3 is private.
var private = prefixes(
	"10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
	"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", // Teredo is in the first, 6to4 is the third
)

// embedding are the ranges of IPv6 that contain an IPv4 address, which begins at a byte: NAT64 and 6to4.
var embedding = map[netip.Prefix]int{
	netip.MustParsePrefix("64:ff9b::/96"): 12,
	netip.MustParsePrefix("2002::/16"):    2,
	netip.MustParsePrefix("::/96"):        12, // IPv4-compatible
}

var global = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

func contains(ranges []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// usable reports whether an address may be dialed: it is public, or in one of the ranges that the
// operator opened, and neither in never nor one of own, the addresses of the host and of this proxy.
func usable(addr netip.Addr, own []netip.Addr, opened []netip.Prefix) bool {
	addr = addr.Unmap()
	if !addr.IsValid() || addr.Zone() != "" || contains(never, addr) || slices.Contains(own, addr) {
		return false
	}
	bytes := addr.AsSlice()
	for outer, at := range embedding {
		if outer.Contains(addr) {
			inner, _ := netip.AddrFromSlice(bytes[at : at+4])
			if contains(never, inner) || slices.Contains(own, inner) {
				return false
			}
		}
	}
	special := contains(private, addr) || addr.Is6() && !global.Contains(addr)
	return !special || contains(opened, addr)
}
