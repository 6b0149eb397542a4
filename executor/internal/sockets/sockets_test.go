package sockets_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/internal/sockets"
)

const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0000 100 0 0 10 0
nonsense
   1: 0100007F:1F91 FFFFFFFF:01BB 02 00000000:00000000 00:00000000 00000000  1000        0 12 1 0000 100 0 0 10 0
`

func TestRead(t *testing.T) {
	t.Parallel()
	var got []sockets.Socket
	err := sockets.Read(strings.NewReader(table), func(s sockets.Socket) bool {
		got = append(got, s)
		return true
	})
	want := []sockets.Socket{
		{Local: netip.MustParseAddrPort("127.0.0.1:8080"), Remote: netip.MustParseAddrPort("0.0.0.0:0"), State: sockets.Listening, Inode: 11},
		{Local: netip.MustParseAddrPort("127.0.0.1:8081"), Remote: netip.MustParseAddrPort("255.255.255.255:443"), State: 2, Inode: 12},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	got = nil
	if err := sockets.Read(strings.NewReader(table), func(s sockets.Socket) bool { got = append(got, s); return false }); err != nil || len(got) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}

func FuzzParse(f *testing.F) {
	for line := range strings.Lines(table) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if s, ok := sockets.Parse(line); ok && !s.Local.IsValid() {
			t.Errorf("got %v", s)
		}
	})
}
