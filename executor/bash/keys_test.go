package bash_test

import (
	"testing"

	"github.com/actiond/actiond/executor/bash"
)

var keys = []struct {
	text string
	want string // "": no key
	name string // of the key, where it is one
}{
	{"C-c", "\x03", "C"},
	{"C-C", "\x03", "C"},
	{"C-d", "\x04", "D"},
	{"C-z", "\x1a", "Z"},
	{"C-a", "\x01", "A"},
	{" C-c\n", "\x03", "C"},
	{"C-@", "\x00", "@"},
	{"C-[", "\x1b", "["},
	{`C-\`, "\x1c", `\`},
	{"C-]", "\x1d", "]"},
	{"C-^", "\x1e", "^"},
	{"C-_", "\x1f", "_"},
	{"C-?", "\x7f", "?"},

	{"", "", ""},
	{"C-", "", ""},
	{"C- ", "", ""},
	{"c-c", "", ""},
	{"C-cc", "", ""},
	{"C-C-c", "", ""},
	{"^C", "", ""},
	{"C-1", "", ""},
	{"C--", "", ""},
	{"C-é", "", ""},
	{"C-\x01", "", ""},
	{"M-x", "", ""},
	{"Enter", "", ""},
	{"-1", "", ""},
	{"echo C-c", "", ""},
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
			if name := bash.KeyName(tt.text); ok && name != tt.name {
				t.Errorf("KeyName(%q) = %q, want %q", tt.text, name, tt.name)
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
		if name := bash.KeyName(text); ok && len(name) != 1 {
			t.Errorf("KeyName(%q) = %q, want one character", text, name)
		}
	})
}
