package memfile_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/memfile"
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

// hand stores a value and loads it into another one, as the next program does.
func hand(t *testing.T, from, to any) error {
	t.Helper()
	m, err := memfile.New()
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Store(from); err != nil {
		t.Fatal(err)
	}
	return m.Load(to)
}

// A value that is handed over comes as it was, also bytes that are not UTF-8.
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

// A value of another type is refused, and an unknown member left out.
func TestDocumentRefused(t *testing.T) {
	t.Parallel()
	var got state
	if err := hand(t, map[string]any{"Text": 1}, &got); err == nil || !strings.Contains(err.Error(), "want a string") {
		t.Errorf("a number for a text: got %v", err)
	}
	if err := hand(t, map[string]any{"Other": 1, "Text": "x"}, &got); err != nil || got.Text != "x" {
		t.Errorf("an unknown member: got %+v, %v", got, err)
	}
}
