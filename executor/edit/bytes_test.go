package edit_test

import (
	"strings"
	"testing"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"
	"golang.org/x/text/encoding/unicode/utf32"

	"github.com/actiond/actiond/executor/edit"
)

// TestBytesStay replaces and says which bytes come out. What is not replaced is as it was, whatever it is.
func TestBytesStay(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, before, old, replacement, want string
	}{
		{"crlf", "one\r\ntwo\r\nthree\r\n", "two", "2", "one\r\n2\r\nthree\r\n"},
		{"crlf found by lf", "one\r\ntwo\r\nthree\r\n", "one\ntwo", "1\n2\n2.5", "1\r\n2\r\n2.5\r\nthree\r\n"},
		{"crlf found by crlf", "one\r\ntwo\r\n", "one\r\ntwo", "x", "x\r\n"},
		{"lf found by crlf", "one\ntwo\n", "one\r\ntwo", "x", "x\n"},
		{"crlf sent into crlf", "a\r\nb\r\n", "b", "x\r\ny", "a\r\nx\r\ny\r\n"},
		{"crlf sent into lf", "a\nb\n", "b", "x\r\ny", "a\nx\r\ny\n"},
		{"cr only", "A\rB\rC\r", "A\nB", "X\nY", "X\rY\rC\r"},
		{"crlf sent into cr", "A\rB\r", "A", "X\r\nY", "X\r\nY\rB\r"},
		{"mixed", "a\r\nb\nc\rd\r\n", "b", "B", "a\r\nB\nc\rd\r\n"},
		{"mixed, unchanged lines of the passage", "a\nb\r\nc\rd\n", "a\nb\nc\nd", "a\nB\nc\nd", "a\nB\r\nc\rd\n"},
		{"mixed, new lines", "a\r\nb\r\nc\n", "c", "c\nd", "a\r\nb\r\nc\r\nd\n"},
		{"line break after a lone cr", "a\rb\nc\nd\n", "b", "\nb", "a\r\r\nb\nc\nd\n"},
		{"line break before a lone lf", "a\rb\rc\nd\r", "c", "c\n", "a\rb\rc\r\n\nd\r"},
		{"cr made into crlf by the caller", "a\nb\n", "a", "a\r", "a\r\nb\n"},
		{"no final newline", "a\nb", "a", "A", "A\nb"},
		{"final newline added", "a\nb", "b", "b\n", "a\nb\n"},
		{"final newline removed", "a\nb\n", "b\n", "b", "a\nb"},
		{"mark", "\ufeffone\ntwo\n", "one", "ONE", "\ufeffONE\ntwo\n"},
		{"mark only", "\ufeff", "", "x", "\ufeffx"},
		{"tabs", "all:\n\techo a\n", "\techo a", "\techo b", "all:\n\techo b\n"},
		{"astral", "你好世界\ne\u0301 😀\n", "世界", "🌍", "你好🌍\ne\u0301 😀\n"},
		{"half a character", "a é b\n", "é", "è", "a è b\n"},
		{"repeated neighbours", "aXa\n", "X", "aa", "aaaa\n"},
		{"overlapping", "aaa\n", "aa", "b", "ba\n"},
		{"a broken byte in utf-8", "é è ü \xff x\n", "x", "ø", "é è ü \xff ø\n"},
		{"utf-16le", "\xff\xfeo\x00n\x00e\x00\n\x00t\x00w\x00o\x00", "two", "Ž\n", "\xff\xfeo\x00n\x00e\x00\n\x00\x7d\x01\n\x00"},
		{"utf-16le crlf", "\xff\xfea\x00\r\x00\n\x00b\x00", "b", "c\nd", "\xff\xfea\x00\r\x00\n\x00c\x00\r\x00\n\x00d\x00"},
		{"utf-16be", "\xfe\xff\x00a\x00\n\xd8\x3d\xde\x00", "a", "b", "\xfe\xff\x00b\x00\n\xd8\x3d\xde\x00"},
		{"latin-1", "caf\xe9 cr\xe8me\r\nna\xefve\n", "café", "thé", "th\xe9 cr\xe8me\r\nna\xefve\n"},
		{"latin-1 elsewhere", "caf\xe9\nx = 1\n", "1", "2", "caf\xe9\nx = 2\n"},
		{"nul inside a mark's encoding", "\xff\xfea\x00", "a", "b", "\xff\xfeb\x00"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.write("f", test.before, 0o644)
			b.replace("f", test.old, test.replacement)
			if got := b.content("f"); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			b.undo("f")
			if got := b.content("f"); got != test.before {
				t.Errorf("after undo: got %q, want %q", got, test.before)
			}
		})
	}
}

func TestInsertKeepsLineEnds(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, before, line, text, want string }{
		{"crlf", "a\r\nb\r\n", "1", "x\ny", "a\r\nx\r\ny\r\nb\r\n"},
		{"crlf at the end", "a\r\nb", "2", "x", "a\r\nb\r\nx\r\n"},
		{"crlf sent into lf", "a\nb\n", "1", "x\r\ny", "a\nx\r\ny\nb\n"},
		{"cr", "a\rb\r", "1", "x", "a\rx\rb\r"},
		{"blank after a lone cr", "a\rb\nc\n", "1", "", "a\r\r\nb\nc\n"},
		{"mark", "\ufeffa\n", "0", "x", "\ufeffx\na\n"},
		{"utf-16", "\xff\xfea\x00\n\x00", "1", "é", "\xff\xfea\x00\n\x00\xe9\x00\n\x00"},
		{"trailing newline", "a\nb\n", "1", "x\n", "a\nx\n\nb\n"},
	}
	for _, test := range tests {
		b := newBench(t)
		path := b.write("f", test.before, 0o644)
		b.do(edit.Command{Name: "insert", Path: path, InsertLine: &test.line, NewStr: &test.text})
		if got := b.content("f"); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// TestCharsets views texts in the charsets they are likely to be in, and edits them.
func TestCharsets(t *testing.T) {
	t.Parallel()
	utf32be := utf32.UTF32(utf32.BigEndian, utf32.UseBOM)
	tests := []struct {
		name   string
		coding encoding.Encoding
		text   string
	}{
		{"latin-1 french", charmap.ISO8859_1, "café crème\nnaïve\n"},
		{"one word", charmap.Windows1252, "café b\n"},
		{"german", charmap.Windows1252, "Größe über Straße\n"},
		{"capitals", charmap.Windows1252, "ÉTÉ À LA PLAGE, DÉJÀ\n"},
		{"spanish", charmap.Windows1252, "¿El niño pequeño comió mañana?\n"},
		{"danish", charmap.Windows1252, "Blåbærgrød på øen\n"},
		{"quotes", charmap.Windows1252, "It’s “good” – ok €5\n"},
		{"a sign", charmap.Windows1252, "25°C\n"},
		{"copyright", charmap.Windows1252, "Copyright © 2004 J. Müller\n"},
		{"declared", charmap.Windows1251, "# -*- coding: cp1251 -*-\n# Тестовый файл\n"},
		{"declared against the odds", charmap.ISO8859_2, "<meta charset=\"iso-8859-2\">\nčas žena\n"},
		{"russian", charmap.Windows1251, "# Тестовый файл с кириллицей\ntext = \"Привет, мир!\"\n"},
		{"russian word", charmap.Windows1251, "text = \"мир\"\n"},
		{"russian capitals", charmap.Windows1251, "ПРИВЕТ МИР\n"},
		{"ukrainian", charmap.Windows1251, "Привіт, світе! Їжак\n"},
		{"koi8-r", charmap.KOI8R, "Привет, мир! Это тестовая строка\n"},
		{"dos", charmap.CodePage866, "Привет, мир! Это тестовая строка\n"},
		{"polish", charmap.Windows1250, "Zażółć gęślą jaźń, proszę bardzo\n"},
		{"czech", charmap.Windows1250, "Příliš žluťoučký kůň úpěl ďábelské ódy\n"},
		{"greek", charmap.Windows1253, "Καλημέρα κόσμε, τι κάνεις\n"},
		{"hebrew", charmap.Windows1255, "שלום עולם מה שלומך\n"},
		{"turkish", charmap.Windows1254, "Türkçe karakterler: ğüşiöç İstanbul\n"},
		{"chinese", simplifiedchinese.GBK, "x = '中文' # 注释\n"},
		{"taiwanese", traditionalchinese.Big5, "你好世界，這是一個測試\n"},
		{"japanese", japanese.ShiftJIS, "こんにちは世界、テストです\n"},
		{"japanese unix", japanese.EUCJP, "こんにちは世界、テストです\n"},
		{"korean", korean.EUCKR, "안녕하세요 세계\n"},
		{"utf-32", utf32be, "one é\ntwo\n"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			raw, err := test.coding.NewEncoder().String(test.text)
			if err != nil {
				t.Fatal(err)
			}
			b := newBench(t)
			path := b.write("f.txt", raw, 0o644)
			shown := b.do(edit.Command{Name: "view", Path: path}).Text
			if want := numberedAs(path, test.text); shown != want {
				t.Fatalf("got %q, want %q", shown, want)
			}
			words := strings.Fields(test.text)
			word := words[len(words)-1]
			b.replace("f.txt", word, "Z"+word)
			want, err := test.coding.NewEncoder().String(strings.Replace(test.text, word, "Z"+word, 1))
			if err != nil {
				t.Fatal(err)
			}
			if got := b.content("f.txt"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func numberedAs(path, text string) string {
	out := catN + path + ":\n"
	for i, line := range strings.Split(text, "\n") {
		out += "     " + string(rune('1'+i)) + "\t" + line + "\n"
	}
	return out
}

func TestUTF8IsNeverGuessedAway(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"v0.\n", strings.Repeat("x = \"é\"\n", 20) + "END\n", "Ã©\n", "\u0080\u0081\n", "\ufffd\n"} {
		b := newBench(t)
		path := b.write("f", text+"tail\n", 0o644)
		r := b.do(edit.Command{Name: "view", Path: path, ViewRange: []int{1, 1}})
		if want := strings.SplitAfter(text, "\n")[0]; !strings.HasSuffix(r.Text, "\t"+want) && text != "\u0080\u0081\n" {
			t.Errorf("got %q, want %q", r.Text, want)
		}
		b.replace("f", "tail", "end")
		if got := b.content("f"); got != text+"end\n" {
			t.Errorf("got %q, want %q", got, text+"end\n")
		}
	}
}

func TestBrokenBytesShowAsEscapes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	path := b.write("f", "é è ü \xff x\n", 0o644)
	if got, want := b.do(edit.Command{Name: "view", Path: path}).Text, catN+path+":\n     1\té è ü \\xff x\n     2\t\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := b.replace("f", "x", "y").Diff, "--- "+path+"\n+++ "+path+"\n@@ -1 +1 @@\n-é è ü \\xff x\n+é è ü \\xff y"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNotEncodable(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, before, old, want string }{
		{"cp1251", "text = \"\xcf\xf0\xe8\xe2\xe5\xf2\"\n", "text", "The character `→` (U+2192) does not exist in windows-1251, the encoding of the file. Nothing was changed."},
		{"latin-1", "caf\xe9\n", "caf", "The character `→` (U+2192) does not exist in windows-1252, the encoding of the file. Nothing was changed."},
	}
	for _, test := range tests {
		b := newBench(t)
		path := b.write("f", test.before, 0o644)
		_, err := b.Do(edit.Command{Name: "str_replace", Path: path, OldStr: &test.old, NewStr: new("a → 😀")})
		wantCode(t, err, edit.CodeNotEncodable)
		if err.Error() != test.want {
			t.Errorf("%s: got %q, want %q", test.name, err, test.want)
		}
		if got := b.content("f"); got != test.before || b.names() != "f" {
			t.Errorf("%s: the file became %q, the directory %s", test.name, got, b.names())
		}
	}
}
