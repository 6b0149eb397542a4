package screen_test

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/actiond/actiond/executor/bash/screen"
)

// Size of the screens below: small, so that edges come soon.
const (
	testCols = 40
	testRows = 10
)

// screens are outputs and what a person would see of them.
var screens = []struct {
	name    string
	output  string
	want    string
	omitted int
}{
	{"nothing", "", "", 0},
	{"line", "hello\r\n", "hello", 0},
	{"no final newline", "abc", "abc", 0},
	{"lines", "a\r\nb\r\n", "a\nb", 0},
	{"newline alone makes no staircase", "ab\ncd\nef", "ab\ncd\nef", 0},
	{"carriage return twice", "ab\r\r\ncd\r\r\n", "ab\ncd", 0},
	{"only carriage returns", "\r\r\r", "", 0},
	{"leading blanks stay", "   indented\r\n  two\r\n", "   indented\n  two", 0},
	{"leading empty lines stay", "\r\n\r\na\r\n", "\n\na", 0},
	{"trailing blanks stay", "a  \r\nb \t \r\n\r\n  \r\n\r\n", "a  \nb \t \n\n  ", 0},
	{"trailing blanks of an unfinished line go", "a \r\nName: \t", "a \nName:", 0},
	{"trailing blanks of an unfinished line with columns go", "a \r\n\x1b7Name: \t", "a \nName:", 0},
	{"trailing blanks of an edited line go", "abcdef\rab    \r\ncd  \b ", "ab\ncd", 0},
	{"tabs", "a\tb\r\n\tc\t\td\r\n12345678\te\t", "a\tb\n\tc\t\td\n12345678\te", 0},
	{"tabs between colours", "\x1b[31ma\x1b[m\t\x1b[1mb\x1b[m\x1b[K\t\r\n", "a\tb\t", 0},
	{"tabs with wide runes", "日\tb\r\né\tc\r\ne\u0301\td", "日\tb\né\tc\ne\u0301\td", 0},
	{"tabs of an edited line", "a\tb\t\rx\r\n日\tb\x1b[D\x1b[Dc", "x       b\n日     cb", 0},
	{"tabs of an emptied line", "50%\t \r\x1b[Ka\tb \r\n50%\x1b[1G\x1b[Kc\td \r\n", "a\tb \nc\td ", 0},
	{"tabs of lines that others were written between", "a\tb \r\nc\td \r\ne\tf \x1b[Ax\r\n\x1b7\r\x1b8g\th ", "a\tb \nc\td x\ng       h", 0},
	{"tabs after a scroll region", "\x1b[1;5ra\tb \r\nc\t\r\n", "a\tb \nc\t", 0},
	{"tabs over text", "a\tb\x1b[3DX\tY", "a     X Y", 0},
	{"marks on tabs", "y\t\u0301z\x1b7X", "y\tzX", 0},
	{"bell, NUL and DEL", "a\x07b\x00c\x7fd", "abcd", 0},
	{"other control characters", "a\x01\x02\x05\x0e\x0f\x10\x15\x1c\x1fb", "ab", 0},
	{"form feed and vertical tab go down", "a\fb\vc", "a\n b\n  c", 0},
	{"wider than the screen", strings.Repeat("ab", 700) + "\r\nc", strings.Repeat("ab", 700) + "\nc", 0},

	{"progress", " 10%\r 50%\r100%\r\ndone", "100%\ndone", 0},
	{"shorter over longer", "downloading\rdone\r\n", "doneloading", 0},
	{"carriage return at the end", "50%\r", "50%", 0},
	{"backspace", "abcd\b\bX", "abXd", 0},
	{"backspace at the start", "\b\babc", "abc", 0},
	{"erased with blanks", "abc\b \b\b \bX", "aX", 0},
	{"overstrike", "b\bbo\bol\bld\bd", "bold", 0},
	{"tab does not erase", "abcdefghijkl\r\tX", "abcdefghXjkl", 0},
	{"erase to the end and write", "abcdef\r\x1b[Kxy\r\nz", "xy\nz", 0},
	{"erase to the end", "abcdef\b\b\x1b[K", "abcd", 0},
	{"erase to the start", "abcdef\b\b\x1b[1K", "     f", 0},
	{"erase the line", "abcdef\x1b[2Kx", "      x", 0},
	{"erase from the middle without going on", "abc\x1b[0K\r\ndef", "abc\ndef", 0},

	{"colours", "\x1b[31mred\x1b[0m \x1b[1;38;5;12mblue\x1b[m\x1b[K\r\n", "red blue", 0},
	{"colours with colons", "\x1b[38:2::1:2:3mx\x1b[4:3my", "xy", 0},
	{"modes without effect", "\x1b[?25l\x1b[?2004ha\x1b[?2004l\x1b[>4;1m\x1b=\x1b>\x1b[6n\x1b[cb", "ab", 0},
	{"character sets", "\x1b(B\x1b)0a\x1b%Gb\x1b#8c\x1b Fd\x1b$(Be", "abcde", 0},
	{"title", "\x1b]0;title\x07text", "text", 0},
	{"title with ST", "\x1b]2;title\x1b\\text", "text", 0},
	{"title as in screen", "\x1bktitle\x1b\\text", "text", 0},
	{"link", "\x1b]8;;https://example.org/\x1b\\link\x1b]8;;\x07 text", "link text", 0},
	{"device control and the like", "a\x1bPq#0~\x1b\\b\x1b^pm\x1b\\c\x1b_apc\x1b\\d\x1bXsos\x1b\\e", "abcde", 0},
	{"string that never ends", "a\x1b]0;title\r\nb\x1bP\nc", "a\nb\nc", 0},
	{"string that never ends in one line", "a\x1b]" + strings.Repeat("x", 8192) + "yz", "ayz", 0},
	{"string broken off", "a\x1b]0;t\x18b\x1b]0;t\x1ac\x1b]0;t\x1b[1md", "abcd", 0},
	{"sequence cut by a line end", "a\x1b[3\r\n1mb\x1b[\nc", "a\n1mb\nc", 0},
	{"sequence cut by a rune", "a\x1b[3é", "aé", 0},
	{"sequence cut by another", "a\x1b[3\x1b[1mb\x1b\x1b[1mc", "abc", 0},
	{"sequence cancelled", "a\x1b[3\x18b\x1b[3\x1ac", "abc", 0},
	{"sequence that never ends", "a\x1b[" + strings.Repeat("1;", 128) + "b", "ab", 0},
	{"sequence with huge numbers", "a\x1b[99999999999999999999Cb", "a" + strings.Repeat(" ", testCols-2) + "b", 0},
	{"escape at the end", "abc\x1b", "abc", 0},
	{"escape before a newline", "a\x1b\r\nb", "a\nb", 0},

	{"up and over", "one\r\ntwo\r\nthree\x1b[2A\rONE", "ONE\ntwo\nthree", 0},
	{"up, over and back down", "1: 0%\r\n2: 0%\r\n\x1b[2A1: 50%\r\n2: 70%\r\nend", "1: 50%\n2: 70%\nend", 0},
	{"not above the start", "one\r\ntwo\x1b[9A\rX", "Xne\ntwo", 0},
	{"not above the screen", lines(1, 30) + "\x1b[99A\rX", lines(1, 21) + "Xine 22\n" + strings.TrimSuffix(lines(23, 30), "\r\n"), 0},
	{"down makes lines", "a\x1b[2Bb", "a\n\n b", 0},
	{"next and previous line", "abc\x1b[2Ed\x1b[Fe", "abc\ne\nd", 0},
	{"column", "abcdef\x1b[3GX\x1b[1`Y\x1b[10GZ", "YbXdef   Z", 0},
	{"position", "abc\r\ndef\x1b[1;2HX\x1b[4;3fY\x1b[2dZ", "aXc\ndefZ\n\n  Y", 0},
	{"position is in the last rows", lines(1, 15) + "\x1b[1;1HX", lines(1, 6) + "Xine 7\n" + strings.TrimSuffix(lines(8, 15), "\r\n"), 0},
	{"index, next line, reverse index", "a\x1bDb\x1bEc\x1bMX", "a\n X\nc", 0},
	{"reverse index scrolls down", "a\r\nb\x1b[H\x1bMX", "X\na\nb", 0},
	{"save and restore", "ab\x1b7cd\x1b8X\x1b[sef\x1b[uY", "abXYf", 0},
	{"insert and delete columns", "abcdef\x1b[3G\x1b[2@XY\x1b[6G\x1b[2P", "abXYcf", 0},
	{"erase columns", "abcdef\x1b[3G\x1b[2X", "ab  ef", 0},
	{"insert mode", "abc\x1b[2G\x1b[4hXY\x1b[4lZ", "aXYZc", 0},
	{"insert and delete lines", "a\r\nb\r\nc\x1b[2;1H\x1b[LX\r\x1b[B\x1b[M", "a\nX\nc", 0},
	{"scroll up keeps what leaves", "a\r\nb\r\nc\x1b[2SX", "a\nb\nc\n\n X", 0},
	{"scroll down", "a\r\nb\x1b[TX", "\naX\nb", 0},
	{"repeat", "-\x1b[5b\r\nab\x1b[3b|", "------\nabbbb|", 0},
	{"erase below", "a\r\nb\r\nc\x1b[1A\x1b[Jd", "a\nbd", 0},
	{"erase above", "abc\r\ndef\r\nghi\x1b[2;2H\x1b[1J", "\n  f\nghi", 0},
	{"progress of several lines", "a 0\r\nb 0\r\n\x1b[2A\x1b[Ja 1\r\nb 1\r\n", "a 1\nb 1", 0},
	{
		"region with a status line", "\x1b7\x1b[1;9r\x1b8" + "a\r\nb\r\n\x1b7\x1b[10;1Hstatus\x1b8c\r\nd\r\ne\r\nf\r\ng\r\nh\r\ni\r\nj\r\nk",
		"a\nb\nc\nd\ne\nf\ng\nh\ni\nj\nk\nstatus", 0,
	},

	{"clear", "a\r\nb\r\n\x1b[H\x1b[2J\x1b[3Jc\r\n", "c", 2},
	{"clear without scroll-back code", "a\r\nb\r\n\x1b[H\x1b[Jc\r\n", "c", 2},
	{"clear before home", "a\r\nb\x1b[2J\x1b[Hc", "c", 2},
	{"clear takes the scroll-back", lines(1, 30) + "\x1b[H\x1b[2J\x1b[3Jc", "c", 30},
	{"erasing the screen leaves the scroll-back", lines(1, 30) + "\x1b[H\x1b[2Jc", lines(1, 21) + "c", 9},
	{"clear of nothing", "\x1b[H\x1b[2J\x1b[3Ja", "a", 0},
	{"reset", lines(1, 12) + "\x1bc\x1b[!p\x1b[?3;4l\x1b[4l\x1b>a", "a", 12},
	{"erase below at the start is no clear", "50%\r\x1b[J60%\r\x1b[Jdone", "done", 0},

	{"alternate screen", "before\r\n\x1b[?1049h\x1b[Hinside\x1b[3;5Hmore", "inside\n\n    more", 0},
	{"alternate screen left", "before\r\n\x1b[?1049h\x1b[Hinside\x1b[?1049lafter", "before\nafter", 0},
	{"alternate screen in the middle of a line", "ab\x1b[?47hX\x1b[?47lcd\x1b[?1047hY\x1b[?1047l", "abcd", 0},
	{"alternate screen is cleared without loss", "a\x1b[?1049hb\x1b[H\x1b[2Jc", "c", 0},
	{"alternate screen wraps", "\x1b[?1049h" + strings.Repeat("x", testCols) + "y", strings.Repeat("x", testCols) + "\ny", 0},
	{"alternate screen does not wrap early", "\x1b[?1049h" + strings.Repeat("x", testCols) + "\r\ny", strings.Repeat("x", testCols) + "\ny", 0},
	{"alternate screen without wrap", "\x1b[?1049h\x1b[?7l" + strings.Repeat("x", testCols) + "yz", strings.Repeat("x", testCols-1) + "z", 0},
	{"alternate screen scrolls", "\x1b[?1049h" + lines(1, 12), strings.TrimSuffix(lines(4, 12), "\r\n"), 0},
	{"alternate screen with a region", "\x1b[?1049h\x1b[10;1Hstatus\x1b[1;3r" + lines(1, 4) + "x", "Line 3\nLine 4\nx\n\n\n\n\n\n\nstatus", 0},
	{"wide rune at the edge", "\x1b[?1049h" + strings.Repeat("x", testCols-1) + "日", strings.Repeat("x", testCols-1) + "\n日", 0},

	{"unicode", "héllo wörld ✓ 日本語 🚀\r\n", "héllo wörld ✓ 日本語 🚀", 0},
	{"over unicode", "héllo\rhE", "hEllo", 0},
	{"over a wide rune", "日本語\r\x1b[2Cx", "日x 語", 0},
	{"over half a wide rune", "日本語\r\x1b[3Cx", "日 x語", 0},
	{"wide rune over half a wide rune", "日本語\r\x1b[Cx語", " x語語", 0},
	{"combining mark", "e\u0301a\u0308\rX", "Xa\u0308", 0},
	{"combining mark after overwriting", "abc\re\u0301", "e\u0301bc", 0},
	{"joined emoji", "👩\u200d💻x\ry\x1b[1C|", "y |", 0},
	{"joined emoji written over", "abcdef\r👩\u200d💻|", "👩\u200d💻|def", 0},
	{"skin tone", "abcdef\r👍🏽|", "👍🏽|def", 0},
	{"bad UTF-8", "a\xffb\xc3(\xe2\x82\r\n\xf0\x9f\x92", "a�b�(��\n���", 0},
	{"bad UTF-8 in a line written over", "abcdefgh\r\xff\xe2\x82x\xf0\x9f", "���x��gh", 0},
	{"rune cut by a sequence", "\xe2\x82\x1b[m\xac", "���", 0},
	{"rune cut by a sequence in a line written over", "abc\r\xe2\x82\x1b[m\xac", "���", 0},
	{"surrogates and overlong forms", "\xed\xa0\x80\xc0\x80", "�����", 0},
	{"control characters of C1", "a\u009b31mb\u0085c\u0090d", "a31mbcd", 0},
}

// lines returns "Line from" to "Line to" as a terminal gets them.
func lines(from, to int) string {
	var b strings.Builder
	for i := from; i <= to; i++ {
		fmt.Fprintf(&b, "Line %d\r\n", i)
	}
	return b.String()
}

// shown returns what a screen shows of output that comes in pieces of n bytes.
func shown(output string, n int) (string, int) {
	s := screen.New(testCols, testRows)
	for len(output) > n {
		_, _ = s.Write([]byte(output[:n]))
		output = output[n:]
	}
	_, _ = s.Write([]byte(output))
	return s.Text()
}

func TestScreen(t *testing.T) {
	t.Parallel()
	for _, tt := range screens {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := strings.ReplaceAll(tt.want, "\r", "")
			for _, n := range []int{1 << 20, 1, 2, 3, 7} {
				if got, omitted := shown(tt.output, n); got != want || omitted != tt.omitted {
					t.Errorf("%.300q in pieces of %d: got %.300q, %d omitted, want %.300q, %d", tt.output, n, got, omitted, want, tt.omitted)
				}
			}
		})
	}
}

// expanded returns text with its tabs as blanks up to the next tab stop, and
// without blanks at the ends of lines, as terminals copy it.
func expanded(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text + "\n") {
		col := 0
		var out []byte
		for _, r := range strings.TrimSuffix(line, "\n") {
			if r == '\t' {
				n := 8 - col%8
				out = append(out, strings.Repeat(" ", n)...)
				col += n
				continue
			}
			out = utf8.AppendRune(out, r)
			col += max(0, screen.RuneWidth(r))
		}
		b.Write(append(bytes.TrimRight(out, " "), '\n'))
	}
	return strings.TrimRight(b.String(), "\n")
}

// TestScreenAsTmux compares with what tmux 3.3a showed of the same bytes in 40
// columns and 10 rows (testdata/tmux.txt: output and capture-pane in turns).
// It shows tabs as blanks, and no blanks at the ends of lines.
func TestScreenAsTmux(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/tmux.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var quoted []string
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if line := sc.Text(); line != "" && line[0] != '#' {
			quoted = append(quoted, line)
		}
	}
	if len(quoted) < 200 || len(quoted)%2 != 0 {
		t.Fatalf("%d lines, want some hundred pairs", len(quoted))
	}
	for i := 0; i < len(quoted); i += 2 {
		output, err1 := strconv.Unquote(quoted[i])
		want, err2 := strconv.Unquote(quoted[i+1])
		if err1 != nil || err2 != nil {
			t.Fatalf("pair %d: %v, %v", i/2, err1, err2)
		}
		if got, _ := shown(output, 1<<20); expanded(got) != want {
			t.Errorf("output %q\n got %q\nwant %q", output, got, want)
		}
	}
}

func TestScreenReset(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name          string
		before, after string
		want          string
	}{
		{"plain", "a\r\nb\r\n", "c\r\n", "c"},
		{"in the middle of a line", "Name: ", "Ada\r\n", "Ada"},
		{"after a carriage return", "50%\r", "60%", "60%"},
		{"progress goes on", "50%", "\r60%", "60%"},
		{"cannot go above", "a\r\nb\r\n", "\x1b[5Ac", "c"},
		{"in the middle of a rune", "a\xe2\x82", "\xacb", "€b"},
		{"in the middle of a rune of a line written over", "xyz\ra\xe2\x82", "\xacb", "€b"},
		{"in the middle of a sequence", "a\x1b[3", "1mb", "b"},
		{"in the middle of a title", "a\x1b]0;ti", "tle\x07b", "b"},
		{"lines with columns", "a\r\nb\x1b[Ac", "d\r\ne", "d\ne"},
		{"alternate screen stays", "a\x1b[?1049h\x1b[2;2Hb", "c", "\n bc"},
		{"alternate screen left after", "a\x1b[?1049hb", "\x1b[?1049lc", "c"},
		{"region stays", "\x1b[1;3ra", "b\r\n\x1b[10;1Hs\x1b[3;1Hc\r\nd\r\ne", "b\n\nc\nd\ne\n\n\n\n\n\n\ns"},
		{"clear counts anew", "a\r\nb\x1b[H\x1b[2J", "c", "c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := screen.New(testCols, testRows)
			_, _ = s.Write([]byte(tt.before))
			s.Reset()
			if got, omitted := s.Text(); !s.AltActive() && got != "" && !strings.Contains(got, "�") || omitted != 0 {
				t.Errorf("right after Reset: %q, %d omitted, want nothing", got, omitted)
			}
			_, _ = s.Write([]byte(tt.after))
			if got, omitted := s.Text(); got != tt.want || omitted != 0 {
				t.Errorf("%q, Reset, %q: got %q, %d omitted, want %q", tt.before, tt.after, got, omitted, tt.want)
			}
		})
	}
}

func TestScreenAltActive(t *testing.T) {
	t.Parallel()
	s := screen.New(testCols, testRows)
	for _, tt := range []struct {
		output string
		want   bool
	}{{"a", false}, {"\x1b[?1049h", true}, {"x\r\ny", true}, {"\x1b[?1049l", false}, {"\x1b[?25;47h", true}, {"\x1bc", false}} {
		_, _ = s.Write([]byte(tt.output))
		if got := s.AltActive(); got != tt.want {
			t.Errorf("after %q: AltActive %t, want %t", tt.output, got, tt.want)
		}
	}
}

// TestScreenTextChangesNothing asks for the text after every byte.
func TestScreenTextChangesNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range screens {
		asked := screen.New(testCols, testRows)
		for i := range min(len(tt.output), 500) {
			_, _ = asked.Write([]byte{tt.output[i]})
			asked.Text()
		}
		got, _ := asked.Text()
		if want, _ := shown(tt.output[:min(len(tt.output), 500)], 500); got != want {
			t.Errorf("%s: asked in between: got %q, want %q", tt.name, got, want)
		}
	}
}

// TestScreenTrims checks the reference's scroll-back.
func TestScreenTrims(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ lines, omitted int }{
		{10_500, 0},
		{10_990, 0},
		{10_991, 10_991 - 10_013},
		{12_000, 12_000 - 10_013},
		{50_000, 50_000 - 10_013},
		{400_000, 400_000 - 10_013},
	} {
		t.Run(strconv.Itoa(tt.lines), func(t *testing.T) {
			t.Parallel()
			output := lines(1, tt.lines)
			want := strings.ReplaceAll(strings.TrimSpace(lines(tt.omitted+1, tt.lines)), "\r", "")
			for _, n := range []int{len(output), 4096, 1000} {
				if got, omitted := shown(output, n); got != want || omitted != tt.omitted {
					t.Errorf("in pieces of %d: got %d lines from %.20q, %d omitted, want from %.20q, %d",
						n, strings.Count(got, "\n")+1, got, omitted, want, tt.omitted)
				}
			}
		})
	}
}

// TestScreenTrimsLinesWithColumns reaches the limits by way of lines that were
// written over, which are kept in another form.
func TestScreenTrimsLinesWithColumns(t *testing.T) {
	t.Parallel()
	var output, want strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&output, "é 0%%\r\né 1%%\x1b[A\r\x1b[K%d\r\n", i)
		if i > 30_000-10_013 {
			fmt.Fprintf(&want, "%d\n", i)
		}
	}
	for _, n := range []int{1 << 20, 4096, 777} {
		got, omitted := shown(output.String(), n)
		if got != want.String()+"é 1%" || omitted != 30_001-10_013 {
			t.Errorf("in pieces of %d: got %d lines from %.20q to %q, %d omitted", n, strings.Count(got, "\n")+1, got, got[len(got)-10:], omitted)
		}
	}
}

// TestScreenLongLines checks that of a line too long its ends are left, and
// how much between them is gone.
func TestScreenLongLines(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	for _, tt := range []struct {
		name   string
		output string
		size   int // of the line, 0: as it is
	}{
		{"70 KB", strings.Repeat("0123456789", 7_000), 0},
		{"400 KB", strings.Repeat("0123456789", 40_000), 0},
		{"1 MiB", strings.Repeat("x", limit), 0},
		{"1 MiB and a byte", strings.Repeat("x", limit) + "y", limit + 1},
		{"20 MB", strings.Repeat("0123456789", 2_000_000), 20_000_000},
		{"20 MB ended", strings.Repeat("0123456789", 2_000_000) + "\r\n", 20_000_000},
		{"5 MB of wide runes", strings.Repeat("日本語", 555_555), 4_999_995},
		{"3 MB after lines and before others", lines(1, 5) + strings.Repeat("0123456789", 300_000) + "\r\nend", 3_000_000},
		{"3 MB with a rest written over", strings.Repeat("0123456789", 300_000) + "\rabc\r\n", 3_000_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text, omitted := shown(tt.output, len(tt.output))
			if omitted != 0 {
				t.Errorf("%d lines omitted, want 0", omitted)
			}
			for _, n := range []int{65_536, 4095} {
				if got, _ := shown(tt.output, n); got != text {
					t.Errorf("in pieces of %d another text than in one", n)
				}
			}
			if tt.size == 0 {
				if want := strings.TrimSpace(tt.output); text != want {
					t.Errorf("got %d bytes, want all %d", len(text), len(want))
				}
				return
			}
			line := text
			for l := range strings.SplitSeq(text, "\n") {
				if len(l) > 1000 {
					line = l
				}
			}
			head, rest, found := strings.Cut(line, "[... ")
			number, tail, noted := strings.Cut(rest, " bytes omitted ...]")
			gone, err := strconv.Atoi(number)
			if !found || !noted || err != nil || len(head)+gone+len(tail) != tt.size {
				t.Fatalf("%d bytes, %q omitted, %d bytes do not make %d", len(head), number, len(tail), tt.size)
			}
			if len(line) > limit || min(len(head), len(tail)) < limit/2-100 || !utf8.ValidString(line) {
				t.Errorf("head of %d and tail of %d bytes, want nearly half of %d each", len(head), len(tail), limit)
			}
			if again, _ := shown(text, len(text)); again != text {
				t.Error("rendering the text again gives another")
			}
		})
	}
}

// TestScreenBoundsText checks that large text loses its oldest lines, tabs and
// bad UTF-8 counted as they are shown.
func TestScreenBoundsText(t *testing.T) {
	t.Parallel()
	const (
		limit = 6 << 20
		many  = 4_000
	)
	for _, line := range []string{
		strings.Repeat("0123456789", 200),
		strings.Repeat("\t", 2000) + "x",
		strings.Repeat("\xff", 1000),
		strings.Repeat("é", 1000) + "\r" + strings.Repeat("ü", 200),
	} {
		output := strings.Repeat(line+"\r\n", many)
		text, omitted := shown(output, len(output))
		if len(text) > limit || len(text) < limit*9/10 || strings.Count(text, "\n")+1+omitted != many {
			t.Errorf("%.20q…: %d bytes in %d lines and %d omitted, want under %d in %d", line, len(text), strings.Count(text, "\n")+1, omitted, limit, many)
		}
		if got, lost := shown(output, 4096); got != text || lost != omitted {
			t.Errorf("%.20q…: in pieces another text than in one", line)
		}
	}
}

// hostile are pieces of output of which random ones make a program that does
// not mean well, or /dev/urandom.
var hostile = []string{
	"abc", "hello world ", "日本", "é", "e\u0301", "\u0301", "👩\u200d💻", "🚀", "\xff", "\xe2\x82", "\xac", "\t", "\r", "\n", "\r\n", "\r\r\n", "\b", "\x00", "\x07", "\x0b", "\x7f",
	"\x1b", "\x1b[", "\x1b]", "\x1bP", "\x1b\\", "\x1b[m", "\x1b[31;1m", "\x1b[K", "\x1b[1K", "\x1b[2K", "\x1b[J", "\x1b[1J", "\x1b[2J", "\x1b[3J", "\x1b[H", "\x1b[5;5H", "\x1b[999;999H",
	"\x1b[A", "\x1b[3A", "\x1b[999A", "\x1b[B", "\x1b[999B", "\x1b[C", "\x1b[999C", "\x1b[D", "\x1b[G", "\x1b[7d", "\x1b[E", "\x1b[F", "\x1b[L", "\x1b[2M", "\x1b[S", "\x1b[T", "\x1b[@", "\x1b[3P", "\x1b[X",
	"\x1b[5b", "\x1b[2;5r", "\x1b[r", "\x1b7", "\x1b8", "\x1bD", "\x1bE", "\x1bM", "\x1bc", "\x1b[?1049h", "\x1b[?1049l", "\x1b[4h", "\x1b[4l", "\x1b[?7l", "\x1b[I", "\x1b[Z", "\x1b(0", "\x1b[!p",
	strings.Repeat("long ", 30), strings.Repeat("x\r\n", 15),
}

// checkScreen checks what holds for any output.
func checkScreen(t *testing.T, output []byte, seed uint64) {
	t.Helper()
	whole := screen.New(testCols, testRows)
	_, _ = whole.Write(output)
	text, omitted := whole.Text()

	pieces := screen.New(testCols, testRows)
	r := rand.New(rand.NewPCG(seed, 1))
	for rest := output; len(rest) > 0; {
		n := 1 + r.IntN(min(len(rest), 1+r.IntN(20)))
		_, _ = pieces.Write(rest[:n])
		rest = rest[n:]
	}
	if got, lost := pieces.Text(); got != text || lost != omitted {
		t.Fatalf("output %.2000q\n in pieces %.2000q, %d omitted\n as a whole %.2000q, %d omitted", output, got, lost, text, omitted)
	}
	if !utf8.ValidString(text) {
		t.Fatalf("output %.2000q: text %.2000q is not UTF-8", output, text)
	}
	for line := range strings.SplitSeq(text, "\n") {
		if strings.ContainsFunc(line, func(r rune) bool { return r < 0x20 && r != '\t' || r >= 0x7f && r < 0xa0 }) {
			t.Fatalf("output %.2000q: line %.2000q holds control characters", output, line)
		}
	}
	if strings.HasSuffix(text, "\n") {
		t.Fatalf("output %.2000q: text %.2000q ends in a newline", output, text)
	}
	if again, lost := shown(text+"\n", len(text)+1); again != text || lost != 0 {
		t.Fatalf("output %.2000q: its text %.2000q comes out as %.2000q, %d omitted", output, text, again, lost)
	}
	whole.Reset()
	if left, lost := whole.Text(); !whole.AltActive() && strings.Trim(left, "�") != "" || lost != 0 {
		t.Fatalf("output %.2000q: %.2000q left after Reset, %d omitted", output, left, lost)
	}
}

func TestScreenHostile(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0))
		var output []byte
		for range 1 + r.IntN(80) {
			output = append(output, hostile[r.IntN(len(hostile))]...)
		}
		checkScreen(t, output, seed)
	}
}

// TestScreenHostileAtLength mixes in output of a size at which lines are
// clipped and dropped.
func TestScreenHostileAtLength(t *testing.T) {
	t.Parallel()
	long := []string{
		lines(1, 12_000), strings.Repeat("0123456789", 110_000), strings.Repeat("日本x", 20_000), strings.Repeat("é 0123456789\r\n", 500),
		strings.Repeat("\t", 9_000), strings.Repeat(strings.Repeat("w", 5_000)+"\r\n", 300), strings.Repeat("x\r\x1b[Ky\n", 3_000),
	}
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 7))
		var output []byte
		for range 1 + r.IntN(60) {
			if r.IntN(6) == 0 {
				output = append(output, long[r.IntN(len(long))]...)
			} else {
				output = append(output, hostile[r.IntN(len(hostile))]...)
			}
		}
		checkScreen(t, output, seed)
	}
}

func FuzzScreen(f *testing.F) {
	for _, tt := range screens {
		f.Add([]byte(tt.output), uint64(1))
	}
	for _, h := range hostile {
		f.Add([]byte("one\r\ntwo"+h+"three"), uint64(2))
	}
	f.Fuzz(func(t *testing.T, output []byte, seed uint64) {
		if len(output) > 1<<16 {
			return
		}
		checkScreen(t, output, seed)
	})
}

// outputs are what programs print without end, 64 KiB of each.
var outputs = []struct {
	name  string
	chunk []byte
}{
	{"100 columns", repeated(strings.Repeat("0123456789", 10) + "\r\n")},
	{"seq", []byte(numbers())},
	{"yes", repeated("y\r\n")},
	{"build log in colours", repeated("\x1b[1m\x1b[32m   Compiling\x1b[0m serde v1.0.219 (/home/u/.cargo/registry)\r\n\x1b[0m\x1b[1m\x1b[33mwarning\x1b[0m\x1b[1m: unused\x1b[0m\r\n \x1b[38;5;12m|\x1b[0m\r\n")},
	{"colour of every letter", repeated("\x1b[31ma\x1b[32mb\x1b[0m")},
	{"progress", repeated("\r 45% [################                    ] 12.3 MB/s eta 00:12")},
	{"progress, line erased", repeated("\r\x1b[K 45% [################                    ] 12.3 MB/s eta 00:12")},
	{"progress with blocks", repeated("\r 45% |██████████████▌             | 450/1000 [00:12<00:14, 36.5it/s]")},
	{"progress of several lines", repeated("\x1b[3A\x1b[2K a: pulling 12 MB\r\n\x1b[2K b: waiting\r\n\x1b[2K c: extracting 3 MB\r\n")},
	{"one line", repeated("0123456789abcdef")},
	{"accents", repeated("Größe überschritten, naïve Prüfung läuft über alle Einträge\r\n")},
	{"tabs", repeated("ok  \tgithub.com/actiond/actiond/api\t0.012s\r\n")},
	{"bad UTF-8", repeated("\xff\xfe\x80\xc3(\xe2\x82 text \xf0\x9f\r\n")},
	{"full screen", repeated("\x1b[?1049h\x1b[H" + strings.Repeat("a line of the full-screen program\x1b[K\r\n", 9) + "\x1b[7mstatus\x1b[m\x1b[?1049l")},
}

func repeated(s string) []byte { return bytes.Repeat([]byte(s), 1+(64<<10)/len(s)) }

func numbers() string {
	var b strings.Builder
	for i := 100_000; b.Len() < 64<<10; i++ {
		fmt.Fprintf(&b, "%d\r\n", i)
	}
	return b.String()
}

func BenchmarkScreen(b *testing.B) {
	for _, o := range outputs {
		b.Run(o.name, func(b *testing.B) {
			s := screen.New(1000, 1000)
			b.ReportAllocs()
			b.SetBytes(int64(len(o.chunk)))
			for b.Loop() {
				_, _ = s.Write(o.chunk)
			}
		})
	}
}

func BenchmarkScreenText(b *testing.B) {
	for _, o := range outputs[:4] {
		b.Run(o.name, func(b *testing.B) {
			s := screen.New(1000, 1000)
			for range 100 {
				_, _ = s.Write(o.chunk)
			}
			b.ReportAllocs()
			for b.Loop() {
				s.Text()
			}
		})
	}
}
