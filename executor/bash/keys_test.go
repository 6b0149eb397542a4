package bash_test

import (
	"testing"

	"github.com/actiond/actiond/executor/bash"
)

var keys = []struct {
	text string
	want string // "": no key
}{
	{"C-c", "\x03"},
	{"C-C", "\x03"},
	{"C-d", "\x04"},
	{"C-z", "\x1a"},
	{"C-a", "\x01"},
	{" C-c\n", "\x03"},
	{"C-@", "\x00"},
	{"C-[", "\x1b"},
	{`C-\`, "\x1c"},
	{"C-]", "\x1d"},
	{"C-^", "\x1e"},
	{"C-_", "\x1f"},
	{"C-?", "\x7f"},

	{"", ""},
	{"C-", ""},
	{"C- ", ""},
	{"c-c", ""},
	{"C-cc", ""},
	{"C-C-c", ""},
	{"^C", ""},
	{"C-1", ""},
	{"C--", ""},
	{"C-é", ""},
	{"C-\x01", ""},
	{"M-x", ""},
	{"Enter", ""},
	{"-1", ""},
	{"echo C-c", ""},
}

func TestKey(t *testing.T) {
	t.Parallel()
	for _, tt := range keys {
		t.Run(tt.text, func(t *testing.T) {
			t.Parallel()
			sent, ok := bash.Key(tt.text)
			if string(sent) != tt.want || ok != (tt.want != "") {
				t.Fatalf("Key(%q) = %q, %t, want %q", tt.text, sent, ok, tt.want)
			}
		})
	}
}

func FuzzKey(f *testing.F) {
	for _, tt := range keys {
		f.Add(tt.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		sent, ok := bash.Key(text)
		if ok != (len(sent) == 1) || ok && sent[0] >= 0x20 && sent[0] != 0x7f {
			t.Errorf("Key(%q) = %q, %t, want one control character or none", text, sent, ok)
		}
	})
}
