package screen

import (
	"bytes"
	"strings"
	"testing"
)

// footprint returns the bytes that a screen holds on to.
func (s *Screen) footprint() int {
	n := cap(s.hist)
	pages := []*page{&s.main}
	if s.alt != nil {
		pages = append(pages, s.alt)
	}
	for _, p := range pages {
		n += 8 * cap(p.lines)
		for _, l := range p.lines {
			if l != nil {
				n += 48 + cap(l.text) + cellSize*cap(l.cells)
			}
		}
	}
	for _, c := range s.marks.list {
		n += len(c) + 64
	}
	return n
}

// TestScreenMemory writes output without end, of every kind, and looks at the
// memory in between.
func TestScreenMemory(t *testing.T) {
	t.Parallel()
	const (
		total = 24 << 20
		few   = 2 << 20 // of what costs a microsecond a byte
		bound = 16 << 20
	)
	for _, tt := range []struct{ name, prefix, output string }{
		{"yes", "", "y\r\n"},
		{"newlines", "", "\n"},
		{"blank lines", "", strings.Repeat(" ", 500) + "\r\n"},
		{"long lines", "", strings.Repeat("0123456789", 1000) + "\r\n"},
		{"one line", "", "0123456789"},
		{"one line of tabs", "", "\t"},
		{"one line of wide runes", "", "日本"},
		{"bad UTF-8", "", "\xff\xfe\xe2\x82"},
		{"NUL", "", "\x00"},
		{"carriage returns", "", "\r"},
		{"progress", "", "\r 45% [####      ]"},
		{"progress, line erased", "", "\r\x1b[K 45% [####      ]"},
		{"colours", "", "\x1b[31ma\x1b[0m"},
		{"unfinished string", "", "\x1b]0;" + strings.Repeat("x", 100)},
		{"unfinished sequence", "", "\x1b[1;2;3;4;5;6;7;8;9"},
		{"far right and far down", "", "\x1b[999;999Hx"},
		{"far right in every line", "", "\x1b[999Cé\n"},
		{"growing lines under the cursor", "\x1b[H", strings.Repeat("x", 500)},
		{"insert mode", "\x1b[4hab\rc", "0123456789"},
		{"marks on one letter", "a\rb", "\u0301"},
		{"ever new clusters", "a\r", "e\u0301\u0302e\u0302\u0301e\u0303\b\r"},
		{"scroll region", "\x1b[1;500r", "line é\r\n"},
		{"upwards", "", "\x1b[999A" + strings.Repeat("é", 100) + "\x1b[999B\r\n"},
		{"long lines made wide", strings.Repeat(strings.Repeat("0123456789", 600)+"\r\n", 999), "é\x1b[A"},
		{"alternate screen", "\x1b[?1049h", "full screen é\r\n"},
		{"alternate screen, wrapping", "\x1b[?1049h", "日本"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := New(1000, 1000)
			_, _ = s.Write([]byte(tt.prefix))
			chunk := bytes.Repeat([]byte(tt.output), 1+(64<<10)/len(tt.output))
			size := total
			if strings.Contains(tt.output, "\x1b[999") || tt.prefix != "" {
				size = few
			}
			for n := 0; n < size; n += len(chunk) {
				_, _ = s.Write(chunk)
				if got := s.footprint(); got > bound {
					t.Fatalf("holds %d bytes after %d bytes of output, want at most %d", got, n, bound)
				}
			}
			if text, _ := s.Text(); len(text) > maxKept {
				t.Errorf("shows %d bytes, want at most %d", len(text), maxKept)
			}
			s.Restart()
			if got := s.footprint(); got > keepBuffer {
				t.Errorf("holds %d bytes after restart, want at most %d", got, keepBuffer)
			}
		})
	}
}

func TestScreenRestart(t *testing.T) {
	t.Parallel()
	for _, before := range []string{
		"a\r\nb", "\x1b]0;title", "\x1b[3", "\xe2\x82", "a\r\xe2\x82", "\x1b[?1049hvim", "\x1b[2;5rx", "\x1b[4h", "a\r\nb\x1b[A", "\x1b[5;5H\x1b7", "a\x1b[H\x1b[2J", "50%\r",
	} {
		s := New(40, 10)
		_, _ = s.Write([]byte(before))
		s.Restart()
		if text, omitted := s.Text(); text != "" || omitted != 0 || s.AltActive() {
			t.Errorf("%q, restart: %q, %d omitted, want nothing", before, text, omitted)
		}
		_, _ = s.Write([]byte("\x1b8new\r\n\x1b[Htext"))
		if text, _ := s.Text(); text != "text" {
			t.Errorf("%q, restart: %q, want %q", before, text, "text")
		}
	}
}

func TestNewIsSmall(t *testing.T) {
	t.Parallel()
	if got := New(1000, 1000).footprint(); got != 0 {
		t.Errorf("a new screen holds %d bytes, want none", got)
	}
}
