package ports

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/internal/sockets"
)

const header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

func row(local, state, inode string) string {
	return "   0: " + local + " 00000000:0000 " + state + " 00000000:00000000 00:00000000 00000000  1000        0 " + inode + " 1 0000 100 0 0 10 0\n"
}

func TestReadTable(t *testing.T) {
	t.Parallel()
	table := header +
		row("0100007F:1F90", "0A", "11") +
		row("00000000:0050", "0A", "12") +
		row("0100007F:1F91", "01", "13") + // connected
		row("0100007F:1F92", "0A", "0") +
		row("0100007F:0000", "0A", "14") +
		row("01000:1F90", "0A", "15") +
		row("00000000000000000000000001000000:1F90", "0A", "16") +
		row("0000000000000000FFFF00000100007F:1F90", "0A", "17") +
		"nonsense\n"
	all, err := readTable(strings.NewReader(table), 0, 100)
	want := []socket{
		{netip.MustParseAddrPort("127.0.0.1:8080"), 11},
		{netip.MustParseAddrPort("0.0.0.0:80"), 12},
		{netip.MustParseAddrPort("[::1]:8080"), 16},
		{netip.MustParseAddrPort("[::ffff:127.0.0.1]:8080"), 17},
	}
	if err != nil || !slices.Equal(all, want) {
		t.Errorf("got %v, %v, want %v", all, err, want)
	}
	some, _ := readTable(strings.NewReader(table), 8080, 2)
	if want := []socket{want[0], want[2]}; !slices.Equal(some, want) {
		t.Errorf("got %v, want %v", some, want)
	}
}

// Which address is tried is decided by who might answer there.
func TestChoose(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ours, others, own string
		want              string
		err               error
	}{
		{"127.0.0.1", "", "", "[127.0.0.1]", nil},
		{"::", "", "", "[::1 127.0.0.1]", nil},
		{"::", "127.0.0.1", "", "[::1]", nil},
		{"::", "0.0.0.0", "", "[::1]", nil},
		{"::", "::ffff:127.0.0.1", "", "[::1]", nil},
		{"0.0.0.0 ::1", "", "", "[127.0.0.1 ::1]", nil},
		{"::ffff:0.0.0.0", "", "", "[127.0.0.1]", nil},
		{"::ffff:127.0.0.3", "", "", "[127.0.0.3]", nil},
		{"127.0.0.1", "::", "", "[]", ErrNotLoopback},
		{"127.0.0.1", "10.0.0.1", "", "[127.0.0.1]", nil},
		{"10.0.0.1", "", "", "[]", ErrNotLoopback},
		{"10.0.0.1", "127.0.0.1", "", "[]", ErrNotLoopback},
		{"::ffff:10.0.0.1", "", "", "[]", ErrNotLoopback},
		{"", "127.0.0.1", "", "[]", ErrNotListening},
		{"", "", "", "[]", ErrNotListening},
		{"127.0.0.1", "", "10.0.0.1", "[]", ErrOwn},
		{"::1", "", "0.0.0.0", "[]", ErrOwn},
		{"127.0.0.1", "", "127.64.0.7", "[127.0.0.1]", nil}, // the server's, in the place of a host
		{"", "", "127.64.0.7", "[]", ErrNotListening},
	} {
		var sockets []socket
		owners, own := map[uint64]int{}, map[uint64]bool{}
		add := func(addresses string, mark func(inode uint64)) {
			for a := range strings.FieldsSeq(addresses) {
				inode := uint64(len(sockets) + 1)
				sockets = append(sockets, socket{netip.AddrPortFrom(netip.MustParseAddr(a), 80), inode})
				mark(inode)
			}
		}
		add(tt.ours, func(inode uint64) { owners[inode] = 1 })
		add(tt.others, func(uint64) {})
		add(tt.own, func(inode uint64) { own[inode] = true })
		targets, err := choose(sockets, owners, own)
		if got := fmt.Sprint(targets); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%+v: got %s, %v", tt, got, err)
		}
	}
}

func FuzzParseRow(f *testing.F) {
	f.Add(row("0100007F:1F90", "0A", "11"))
	f.Add(row("0000000000000000FFFF00000100007F:1F90", "0A", "17"))
	f.Fuzz(func(t *testing.T, row string) {
		parsed, ok := sockets.Parse(row)
		if !ok {
			return
		}
		s, ok := listener(parsed)
		if ok != (s.at.IsValid() && s.at.Port() != 0 && s.inode != 0) {
			t.Errorf("got %v, %v", s, ok)
		}
	})
}
