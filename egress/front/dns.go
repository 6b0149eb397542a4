package front

import (
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/actiond/actiond/egress"
)

const (
	// maxQuery bounds a query, in bytes. One question has at most 271.
	maxQuery = 1280
	// answerTTL is how long a program may keep an address, in seconds. It is less than nameTime, so
	// that the address still belongs to the name.
	answerTTL = 10
)

var (
	loopback4 = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	loopback6 = netip.IPv6Loopback()
)

// answerQuery answers a DNS query without asking any other server. It returns nil for a message that is no
// query. address is called for host names with a dot; it returns false where there is none to be had
// just now. own is the sandbox's own host name.
func answerQuery(query []byte, own string, address func(egress.Host) (netip.Addr, bool)) []byte {
	var p dnsmessage.Parser
	asked, err := p.Start(query)
	if err != nil || asked.Response {
		return nil
	}
	header := dnsmessage.Header{
		ID: asked.ID, Response: true, OpCode: asked.OpCode, RecursionDesired: asked.RecursionDesired, RecursionAvailable: true,
		RCode: dnsmessage.RCodeFormatError,
	}
	if asked.OpCode != 0 {
		header.RCode = dnsmessage.RCodeNotImplemented
		return encodeAnswer(header, nil, netip.Addr{})
	}
	q, err := p.Question()
	if err != nil {
		return encodeAnswer(header, nil, netip.Addr{})
	}
	if _, err := p.Question(); err != dnsmessage.ErrSectionDone { //nolint:errorlint // it is returned as it is
		return encodeAnswer(header, nil, netip.Addr{})
	}
	if q.Class != dnsmessage.ClassINET {
		header.RCode = dnsmessage.RCodeRefused
		return encodeAnswer(header, &q, netip.Addr{})
	}
	var addr netip.Addr
	header.RCode, addr = lookUp(q.Name.String(), q.Type, own, address)
	return encodeAnswer(header, &q, addr)
}

// lookUp returns the answer for a name, and an address if the answer has one.
func lookUp(name string, kind dnsmessage.Type, own string, address func(egress.Host) (netip.Addr, bool)) (dnsmessage.RCode, netip.Addr) {
	bare := strings.ToLower(strings.TrimSuffix(name, "."))
	local := isLocalhost(bare)
	if local || bare == own {
		switch {
		case kind == dnsmessage.TypeA:
			return dnsmessage.RCodeSuccess, loopback4
		case kind == dnsmessage.TypeAAAA && local:
			return dnsmessage.RCodeSuccess, loopback6
		}
		return dnsmessage.RCodeSuccess, netip.Addr{}
	}
	host, err := egress.ParseHost(bare)
	if err != nil || !strings.Contains(bare, ".") || host.IsAddress() {
		return dnsmessage.RCodeNameError, netip.Addr{}
	}
	if kind != dnsmessage.TypeA { // without AAAA and HTTPS, programs take the address of the A record
		return dnsmessage.RCodeSuccess, netip.Addr{}
	}
	addr, ok := address(host)
	if !ok {
		return dnsmessage.RCodeServerFailure, netip.Addr{}
	}
	return dnsmessage.RCodeSuccess, addr
}

// encodeAnswer encodes an answer. q is nil where the question could not be read.
func encodeAnswer(h dnsmessage.Header, q *dnsmessage.Question, addr netip.Addr) []byte {
	m := dnsmessage.Message{Header: h}
	if q != nil {
		m.Questions = []dnsmessage.Question{*q}
	}
	if q != nil && addr.IsValid() {
		resource := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: answerTTL}}
		if addr.Is4() {
			resource.Body = &dnsmessage.AResource{A: addr.As4()}
		} else {
			resource.Body = &dnsmessage.AAAAResource{AAAA: addr.As16()}
		}
		m.Answers = []dnsmessage.Resource{resource}
	}
	answer, err := m.Pack()
	if err != nil {
		return nil // a name that was unpacked can be packed
	}
	return answer
}
