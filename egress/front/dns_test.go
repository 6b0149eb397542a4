package front_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/actiond/actiond/egress"
	"github.com/actiond/actiond/egress/front"
)

var namesRange = netip.MustParsePrefix("127.64.0.0/10")

// query encodes a query of one question.
func query(tb testing.TB, name string, kind dnsmessage.Type) []byte {
	tb.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
	packed, err := m.Pack()
	if err != nil {
		tb.Fatal(err)
	}
	return packed
}

// TestAttackQueries: what is no query is not answered, and what is a wrong one is refused.
func TestAttackQueries(t *testing.T) {
	t.Parallel()
	good := query(t, "a.example.", dnsmessage.TypeA)
	with := func(change func(q []byte) []byte) []byte { return change(bytes.Clone(good)) }
	header := func(questions uint16) []byte {
		h := []byte{0, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}
		binary.BigEndian.PutUint16(h[4:], questions)
		return h
	}
	question := func(name string) []byte { return append(append(header(1), name...), 0, 1, 0, 1) }
	const none = -1
	for name, tc := range map[string]struct {
		packet []byte
		want   int
	}{
		"good":                     {good, int(dnsmessage.RCodeSuccess)},
		"nothing":                  {nil, none},
		"half a header":            {good[:11], none},
		"an answer":                {with(func(q []byte) []byte { q[2] |= 0x80; return q }), none},
		"an update":                {with(func(q []byte) []byte { q[2] |= 5 << 3; return q }), int(dnsmessage.RCodeNotImplemented)},
		"no question":              {header(0), int(dnsmessage.RCodeFormatError)},
		"65535 questions":          {append(header(65535), good[12:]...), int(dnsmessage.RCodeFormatError)},
		"two questions":            {append(append(header(2), good[12:]...), good[12:]...), int(dnsmessage.RCodeFormatError)},
		"half a question":          {good[:len(good)-3], int(dnsmessage.RCodeFormatError)},
		"class chaos":              {with(func(q []byte) []byte { q[len(q)-1] = 3; return q }), int(dnsmessage.RCodeRefused)},
		"a name that is itself":    {question("\xc0\x0c"), int(dnsmessage.RCodeFormatError)},
		"two pointers in a circle": {question("\xc0\x0e\xc0\x0c"), int(dnsmessage.RCodeFormatError)},
		"a pointer past the end":   {question("\xff\xff"), int(dnsmessage.RCodeFormatError)},
		"a pointer to the header":  {question("\x01a\xc0\x00"), int(dnsmessage.RCodeNameError)},
		"a long label":             {question("\x40" + strings.Repeat("a", 64) + "\x00"), int(dnsmessage.RCodeFormatError)},
		"a long name":              {question(strings.Repeat("\x3f"+strings.Repeat("a", 63), 5) + "\x00"), int(dnsmessage.RCodeFormatError)},
		"a control character":      {question("\x03a\x1bb\x07example\x00"), int(dnsmessage.RCodeNameError)},
		"a zero":                   {question("\x03a\x00b\x07example\x00"), int(dnsmessage.RCodeNameError)},
		"a newline":                {question("\x06a\r\nX:y\x07example\x00"), int(dnsmessage.RCodeNameError)},
		"a dot in a label":         {question("\x03a.b\x07example\x00"), int(dnsmessage.RCodeFormatError)},
		"a port":                   {question("\x01a\x0aexample:80\x00"), int(dnsmessage.RCodeNameError)},
		"an at":                    {question("\x03a@b\x07example\x00"), int(dnsmessage.RCodeNameError)},
		"letters beyond ASCII":     {question("\x03\xc3\xa4b\x07example\x00"), int(dnsmessage.RCodeNameError)},
		"punycode":                 {question("\x08xn--4gbd\x07example\x00"), int(dnsmessage.RCodeSuccess)},
		"an underscore":            {question("\x04_ssh\x04_tcp\x07example\x00"), int(dnsmessage.RCodeSuccess)},
		"an underscore at the end": {question("\x01a\x08example_\x00"), int(dnsmessage.RCodeNameError)},
		"a hyphen first":           {question("\x02-a\x07example\x00"), int(dnsmessage.RCodeNameError)},
		"a wildcard":               {question("\x01*\x07example\x00"), int(dnsmessage.RCodeNameError)},
		"more behind the question": {append(bytes.Clone(good), make([]byte, 1000)...), int(dnsmessage.RCodeSuccess)},
	} {
		got := front.AnswerQuery(tc.packet, "own", func(egress.Host) (netip.Addr, bool) { return namesRange.Addr(), true })
		var p dnsmessage.Parser
		h, err := p.Start(got)
		switch {
		case tc.want == none && got != nil:
			t.Errorf("%s: got %x", name, got)
		case tc.want != none && (err != nil || int(h.RCode) != tc.want || h.ID != 7 || !h.Response):
			t.Errorf("%s: got %+v, %v, want %v", name, h, err, dnsmessage.RCode(tc.want))
		}
	}
}

// FuzzAnswerQuery: any packet gets no answer, or a small one that is well-formed.
func FuzzAnswerQuery(f *testing.F) {
	f.Add(query(f, "a.example.", dnsmessage.TypeA))
	f.Add(query(f, "localhost.", dnsmessage.TypeAAAA))
	f.Add(query(f, "own.", dnsmessage.TypeHTTPS))
	f.Add([]byte("\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"))
	f.Fuzz(func(t *testing.T, packet []byte) {
		var asked []string
		answer := front.AnswerQuery(packet, "own", func(h egress.Host) (netip.Addr, bool) {
			asked = append(asked, h.String())
			return namesRange.Addr(), len(packet)%2 == 0
		})
		if answer == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(answer); err != nil || len(answer) > 512 || !m.Response || len(m.Questions) > 1 || len(m.Answers) > 1 || len(asked) > 1 {
			t.Fatalf("%x: got %+v, %v, asked for %q", packet, m, err, asked)
		}
		if !bytes.Equal(answer[:2], packet[:2]) {
			t.Errorf("%x: the id is %x", packet, answer[:2])
		}
		for _, name := range asked {
			if again, err := egress.ParseHost(name); err != nil || again.String() != name || !strings.Contains(name, ".") {
				t.Errorf("%x: asked for %q", packet, name)
			}
		}
	})
}
