package journal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/internal/testhelp"
)

// changed describes the changes that are kept, the newest first.
func changed(j *journal.Journal) string {
	var all []string
	for _, c := range j.Changes(0, 100) {
		all = append(all, fmt.Sprintf("%d:%d:s%d:%s", c.Seq, c.N, c.State, c.Data))
	}
	return strings.Join(all, " ")
}

// end carries out an action with an effect, and a change unless data is "".
func end(tb testing.TB, j *journal.Journal, id string, effect journal.Effect, state uint64, data string) {
	tb.Helper()
	a := reserve(tb, j, id)
	if err := a.Begin(); err != nil {
		tb.Fatal(err)
	}
	a.SetEffect(effect, state)
	if data != "" {
		a.Change(state, []byte(data))
	}
	a.Finish(3, []byte("result"))
}

func TestChangesSurvive(t *testing.T) {
	t.Parallel()
	for _, noText := range []bool{false, true} {
		cfg := journal.Config{Dir: filepath.Join(t.TempDir(), "journal"), NoText: noText}
		j := open(t, cfg)
		end(t, j, "a", journal.EffectSome, 2, "one")
		j.Note(3, []byte("outside"))
		end(t, j, "b", journal.EffectNone, 5, "")
		end(t, j, "c", journal.EffectSome, 4, strings.Repeat("x", 100<<10))
		reserve(t, j, "open").SetEffect(journal.EffectSome, 6)
		want := "3:3:s4:" + strings.Repeat("x", 100<<10) + " 2:0:s3:outside 1:1:s2:one"
		if got := changed(j); got != want {
			t.Errorf("got %.100s", got)
		}
		if page := j.Changes(3, 1); len(page) != 1 || page[0].Seq != 2 {
			t.Errorf("got %+v, want the second", page)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		j = open(t, cfg)
		if noText {
			want = ""
		}
		if got := changed(j); got != want {
			t.Errorf("after a restart: got %.100s", got)
		}
		after := map[string]uint64{"a": 2, "b": 5}
		for id, effect := range map[string]journal.Effect{"a": journal.EffectSome, "b": journal.EffectNone} {
			a, err := j.Lookup(id)
			if err != nil {
				t.Fatal(err)
			}
			info := a.Info()
			if noText && effect == journal.EffectSome {
				effect = journal.EffectUnknown
			}
			if info.Effect != effect || info.After != after[id] || info.State != journal.Done || info.Outcome != 3 {
				t.Errorf("%s: got effect %d, state %d after, %s, outcome %d", id, info.Effect, info.After, info.State, info.Outcome)
			}
		}
		if a, _ := j.Lookup("a"); !noText {
			if c, ok := a.Changed(); !ok || string(c.Data) != "one" || c.N != 1 || c.Time.IsZero() {
				t.Errorf("got %+v, %t", c, ok)
			}
			if got := j.LastState(); got != 5 {
				t.Errorf("got state %d", got)
			}
			end(t, j, "d", journal.EffectSome, 9, "more")
			if c := j.Changes(0, 1); len(c) != 1 || c[0].Seq != 4 {
				t.Errorf("got %+v", c)
			}
		}
	}
}

// The changes of an action are forgotten with it, and those of no action with the actions around them.
func TestChangesAreForgotten(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "journal")
	cfg := journal.Config{Dir: dir, MaxActions: 2}
	j := open(t, cfg)
	j.Note(1, []byte("first"))
	for i := range 4 {
		end(t, j, fmt.Sprint(i), journal.EffectSome, uint64(i+2), fmt.Sprint(i))
		j.Note(uint64(i+2), []byte("beside "+fmt.Sprint(i)))
	}
	want := "9:0:s5:beside 3 8:4:s5:3 7:0:s4:beside 2 6:3:s4:2"
	if got := changed(j); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, cfg)
	if got := changed(j); got != want {
		t.Errorf("after a restart: got %s, want %s", got, want)
	}
}

// Changes of no action alone, as of uploads, are bounded in number, and their files are removed.
func TestLooseChangesAreBounded(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "journal")
	j := open(t, journal.Config{Dir: dir})
	data := []byte(strings.Repeat("x", 20<<10))
	for i := range 1300 {
		j.Note(uint64(i+1), data)
	}
	if n := len(j.Changes(0, 5000)); n != 1000 {
		t.Errorf("got %d changes", n)
	}
	var size int64
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			size += info.Size()
		}
	}
	if size > 26<<20 {
		t.Errorf("the files have %d bytes", size)
	}
}

// Changes of no action keep no files of actions that are forgotten, for which all others would be forgotten.
func TestLooseChangesKeepNoActionsOut(t *testing.T) {
	t.Parallel()
	j := open(t, journal.Config{Dir: filepath.Join(t.TempDir(), "journal"), MaxBytes: 24 << 20})
	result := make([]byte, 1<<20)
	for i := range 60 {
		j.Note(uint64(i+1), []byte("beside"))
		a := reserve(t, j, fmt.Sprint(i))
		if err := a.Begin(); err != nil {
			t.Fatal(err)
		}
		a.Finish(1, result)
		kept := j.List(0, 100, func(journal.Info) bool { return true })
		if want := min(i+1, 12); len(kept) < want {
			t.Fatalf("after %d: got %d actions, want %d at least", i+1, len(kept), want)
		}
	}
}

// A damaged change is left out, and the rest is kept.
func TestDamagedChange(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "journal")
	j := open(t, journal.Config{Dir: dir})
	end(t, j, "a", journal.EffectSome, 2, "the damaged one")
	end(t, j, "b", journal.EffectSome, 3, "the other")
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "log-0000000000000001")
	data := testhelp.ReadFile(t, name)
	damaged := strings.Replace(string(data), "damaged", "DAMAGED", 1)
	testhelp.WriteFile(t, name, damaged, 0o600)
	j = open(t, journal.Config{Dir: dir})
	if got := changed(j); got != "2:2:s3:the other" {
		t.Errorf("got %q", got)
	}
	if got := known(t, j, "b"); !strings.HasPrefix(got, "done") {
		t.Errorf("got %s", got)
	}
}

// A journal of before the states of actions had records: the record of a change has it.
func TestStateOfOldChange(t *testing.T) {
	t.Parallel()
	cfg := journal.Config{Dir: filepath.Join(t.TempDir(), "journal")}
	j := open(t, cfg)
	a := reserve(t, j, "a")
	if err := a.Begin(); err != nil {
		t.Fatal(err)
	}
	a.Change(4, []byte("one"))
	a.Finish(3, []byte("result"))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	a, err := open(t, cfg).Lookup("a")
	if err != nil {
		t.Fatal(err)
	}
	if info := a.Info(); info.After != 4 || info.Effect != journal.EffectSome {
		t.Errorf("got effect %d, state %d after, want 4", info.Effect, info.After)
	}
}
