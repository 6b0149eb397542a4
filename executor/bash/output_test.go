package bash

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
)

// stream is a text in which no two places look alike.
func stream(n int) []byte {
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, "%08x\n", b.Len())
	}
	return b.Bytes()[:n]
}

func TestLogKeepsTheLastBytes(t *testing.T) {
	t.Parallel()
	all := stream(3*logSize + 12345)
	for _, tt := range []struct {
		name  string
		write int // bytes at a time
		total int
	}{
		{"nothing", 1, 0},
		{"one byte", 1, 1},
		{"less than the first ring", 100, 1000},
		{"just the first ring", 64, firstRing},
		{"grown", 1000, 100_000},
		{"just full", 4096, logSize},
		{"one byte over", 4096, logSize + 1},
		{"wrapped", 4093, 2*logSize + 777},
		{"writes larger than the log", logSize + 999, 3*logSize + 12345},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var l outputLog
			for at := 0; at < tt.total; at += tt.write {
				l.Append(all[at:min(at+tt.write, tt.total)])
			}
			start := max(0, tt.total-logSize)
			if l.End() != int64(tt.total) || l.Start() != int64(start) {
				t.Fatalf("got %d to %d, want %d to %d", l.Start(), l.End(), start, tt.total)
			}
			got := make([]byte, tt.total-start)
			if n, err := l.ReadAt(got, l.Start()); n != len(got) || err != nil {
				t.Fatalf("reading all: %d, %v, want %d", n, err, len(got))
			}
			if !bytes.Equal(got, all[start:tt.total]) {
				t.Error("the bytes kept are not the last ones written")
			}
		})
	}
}

func TestLogReadAt(t *testing.T) {
	t.Parallel()
	var l outputLog
	l.Append(stream(logSize + 100))
	for _, tt := range []struct {
		name string
		off  int64
		size int
		want int
		err  error
	}{
		{"at the start", 100, 10, 10, nil},
		{"in the middle", 5000, 10, 10, nil},
		{"across the seam", logSize - 5, 10, 10, nil},
		{"up to the end", logSize + 90, 10, 10, nil},
		{"over the end", logSize + 95, 10, 5, io.EOF},
		{"at the end", logSize + 100, 10, 0, io.EOF},
		{"nothing", 100, 0, 0, nil},
		{"no longer kept", 99, 10, 0, errLogGone},
		{"negative", -1, 10, 0, errLogGone},
		{"behind the end", logSize + 101, 10, 0, errLogGone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := make([]byte, tt.size)
			n, err := l.ReadAt(p, tt.off)
			if n != tt.want || !errors.Is(err, tt.err) {
				t.Fatalf("got %d, %v, want %d, %v", n, err, tt.want, tt.err)
			}
			if n > 0 && !bytes.Equal(p[:n], stream(logSize + 100)[tt.off:tt.off+int64(n)]) {
				t.Errorf("got %q at %d", p[:n], tt.off)
			}
		})
	}
}

func BenchmarkLogAppend(b *testing.B) {
	for _, size := range []int{16, 4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%d bytes", size), func(b *testing.B) {
			var l outputLog
			p := stream(size)
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				l.Append(p)
			}
		})
	}
}
