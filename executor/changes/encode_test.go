package changes_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/actiond/actiond/executor/changes"
)

// A state is the same after it was encoded and decoded.
func TestEncode(t *testing.T) {
	t.Parallel()
	for place, dir := range places(t) {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			p := &program{dir: dir, random: rand.New(rand.NewPCG(1, 2))}
			for range 100 {
				p.act()
			}
			do(t, dir, "write \xfe 1\nxattr \xfe 1")
			tracker := track(t, changes.Config{Root: dir, MaxNames: 40})
			first := step(t, tracker)
			encoded := first.Encode([]byte("before"))
			got, err := changes.DecodeState(encoded[len("before"):])
			if err != nil {
				t.Fatal(err)
			}
			if again := got.Encode(nil); !bytes.Equal(again, encoded[len("before"):]) {
				t.Error("another encoded form")
			}
			if got.Names() != first.Names() {
				t.Errorf("got %d names, want %d", got.Names(), first.Names())
			}
			for range 50 {
				p.act()
			}
			second := step(t, tracker)
			if got, want := facts(changes.Compare(got, second, changes.Limits{})), facts(changes.Compare(first, second, changes.Limits{})); got != want {
				t.Errorf("compared with the decoded state: %s\nwith the state: %s", got, want)
			}
		})
	}
}

// What changed while there was no tracker is known from the last state of an earlier one, and what did not change is not
// read again.
func TestAdopt(t *testing.T) {
	t.Parallel()
	dir, kept := t.TempDir(), contents(t, 0)
	do(t, dir, "mkdir d\nwrite d/a 1\nwrite b 1\nwrite c 1")
	earlier, err := changes.New(changes.Config{Root: dir, Store: kept})
	if err != nil {
		t.Fatal(err)
	}
	keep(t, earlier)
	encoded := verify(t, earlier).Encode(nil)
	if err := earlier.Close(); err != nil {
		t.Fatal(err)
	}
	do(t, dir, "write b 2\nmv d e\nrm c")
	last, err := changes.DecodeState(encoded)
	if err != nil {
		t.Fatal(err)
	}
	tracker := track(t, changes.Config{Root: dir, Store: kept})
	tracker.Adopt(last)
	keep(t, tracker)
	if p := tracker.Keeping(); p.AllFiles != 1 {
		t.Errorf("%d files were read, want 1", p.AllFiles)
	}
	now := step(t, tracker)
	if got, want := facts(changes.Compare(last, now, changes.Limits{})), "deleted c, modified b, renamed e from d"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	has(t, tracker, last, "b", "1")
}

// No bytes do harm; those that are a state are one.
func FuzzDecodeState(f *testing.F) {
	dir := f.TempDir()
	do(f, dir, "mkdir d/e\nwrite d/a 1\nln d/a b\nsymlink x l\nfifo p\nwrite \xff 1\nxattr d 1")
	encoded := step(f, track(f, changes.Config{Root: dir})).Encode(nil)
	f.Add(encoded[:len(encoded)-4])
	f.Add(encoded[:len(encoded)-20])
	f.Add([]byte("actiondt\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		data := binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
		s, err := changes.DecodeState(data)
		if err != nil {
			return
		}
		again, err := changes.DecodeState(s.Encode(nil))
		if err != nil || again.Names() != s.Names() {
			t.Fatal(err)
		}
		if got := changes.Compare(s, again, changes.Limits{}); got.Counts != (changes.Counts{}) {
			t.Errorf("got %+v", got.Counts)
		}
	})
}
