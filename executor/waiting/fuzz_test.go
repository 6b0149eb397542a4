package waiting

import "testing"

// FuzzParseCall: what /proc says of a system call is understood or refused.
func FuzzParseCall(f *testing.F) {
	f.Add("running\n")
	f.Add("-1 0x7ffe56dc39b8 0x7fefd4cfd503\n")
	f.Add("0 0x0 0x7fcc341ae000 0x20000 0x7fcc34241b60 0xffffffff 0x0 0x7ffd794fb618 0x7fcc3432a2ad\n")
	f.Fuzz(func(t *testing.T, line string) {
		if c, err := parseCall(line); err == nil && c.running && (c.number != 0 || c.wide) {
			t.Errorf("got %+v", c)
		}
	})
}
