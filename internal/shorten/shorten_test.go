package shorten_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/actiond/actiond/internal/shorten"
)

func TestBytes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		most int
		want string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abc", 2, "ab"},
		{"abc", 0, ""},
		{"aé", 2, "a"},
		{"aé", 3, "aé"},
		{"a🚀b", 4, "a"},
		{"a🚀b", 5, "a🚀"},
		{"🚀", 3, ""},
		{"\x80\x80\x80\x80\x80\x80", 5, "\x80\x80\x80\x80\x80"}, // no characters to keep whole
		{"a\xff\xff", 2, "a\xff"},
	} {
		if got := shorten.Bytes(tt.in, tt.most); got != tt.want {
			t.Errorf("%q, %d: got %q, want %q", tt.in, tt.most, got, tt.want)
		}
	}
}

func TestTextAndQuoted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, text, quoted string }{
		{"abc", "abc", `"abc"`},
		{"abcd", "abc…", `"abc"…`},
		{"ab\n", "ab\n", `"ab\n"`},
		{"\nabé", "\nab…", `"\nab"…`},
		{"abé", "ab…", `"ab"…`},
	} {
		if got := shorten.Text(tt.in, 3); got != tt.text {
			t.Errorf("text %q: got %q, want %q", tt.in, got, tt.text)
		}
		if got := shorten.Quoted(tt.in, 3); got != tt.quoted {
			t.Errorf("quoted %q: got %s, want %s", tt.in, got, tt.quoted)
		}
	}
}

func TestMiddle(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in         string
		head, tail int
		want       string
	}{
		{"abcd", 2, 2, "abcd"},
		{"abcde", 2, 2, "ab[..]de"},
		{"abcde", 3, 1, "abc[..]e"},
		{"abcde", 3, 0, "abc[..]"},
		{"äöüß", 2, 2, "äöüß"},
		{"äöüßé", 2, 2, "äö[..]ßé"},
		{"\xff\xfe\xfd", 1, 1, "\xff[..]\xfd"},
	} {
		if got := shorten.Middle(tt.in, tt.head, tt.tail, "[..]"); got != tt.want {
			t.Errorf("%q, %d, %d: got %q, want %q", tt.in, tt.head, tt.tail, got, tt.want)
		}
	}
}

// FuzzShorten: a text becomes no longer than asked for, and stays valid UTF-8.
func FuzzShorten(f *testing.F) {
	f.Add("aé🚀\xff", 3)
	f.Fuzz(func(t *testing.T, s string, most int) {
		if most < 0 || most > 1<<20 {
			return
		}
		got := shorten.Bytes(s, most)
		if !strings.HasPrefix(s, got) || len(got) > most || len(got) < min(len(s), most)-3 || utf8.ValidString(s) && !utf8.ValidString(got) {
			t.Errorf("%q, %d: got %q", s, most, got)
		}
		if m := shorten.Middle(s, most, most, ""); utf8.RuneCountInString(m) > 2*most || utf8.ValidString(s) && !utf8.ValidString(m) {
			t.Errorf("%q, %d: the ends are %q", s, most, m)
		}
	})
}
