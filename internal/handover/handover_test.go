package handover_test

import (
	"io"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/handover"
)

type state struct {
	Text  string
	List  []string
	Map   map[string]string
	Bytes []byte
	None  []byte
	Time  time.Time
	Span  time.Duration
	Modes unix.Termios
	Inner *state
}

// hand writes a value and reads it into another one, as the next program does.
func hand(t *testing.T, from, to any) error {
	t.Helper()
	file, err := handover.Write(from)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	return handover.Read(fd, to)
}

// What is handed over comes as it was, also bytes that are not UTF-8.
func TestDocument(t *testing.T) {
	t.Parallel()
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	want := state{
		Text: string(all), List: []string{"", "\xff", "ä\u2028\ufffd", "\xed\xa0\x80"}, Map: map[string]string{"\xfe": "\xff", "": ""},
		Bytes: all, Time: time.Unix(1, 2).UTC(), Span: time.Minute, Modes: unix.Termios{Iflag: 7, Cc: [19]uint8{1, 2, 255}},
		Inner: &state{Text: "x", Bytes: []byte{}, Time: time.Unix(3, 4).UTC()},
	}
	var got state
	if err := hand(t, &want, &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

// A program that does not know a member, or gets something else, does not go on.
func TestDocumentRefused(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		from any
		want string
	}{
		{"an unknown member", map[string]int{"Other": 1}, "Other"},
		{"a number for a text", map[string]any{"Text": 1}, "want a string"},
	} {
		var got state
		if err := hand(t, tt.from, &got); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v", tt.name, err)
		}
	}
	plain, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := io.WriteString(plain, "{}"); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(plain.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := handover.Read(fd, &state{}); err == nil || !strings.Contains(err.Error(), "no state") {
		t.Errorf("a file that can be changed: got %v", err)
	}
}
