package notebook_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/actiond/actiond/executor/notebook"
)

const (
	streamHeader = `{"msg_id":"1","msg_type":"stream"}`
	parentHeader = `{"msg_id":"2"}`
)

func TestReceive(t *testing.T) {
	t.Parallel()
	key := []byte("key")
	hi := notebook.Signed(key, "stream", streamHeader, parentHeader, "{}", `{"name":"stdout","text":"hi"}`)
	forged := notebook.Signed([]byte("other"), "stream", streamHeader, parentHeader, "{}", `{"name":"stdout","text":"forged"}`)
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"one":                       {hi, "hi"},
		"two":                       {append(bytes.Clone(hi), hi...), "hihi"},
		"another key":               {append(bytes.Clone(forged), hi...), "hi"},
		"cut short":                 {hi[:len(hi)-1], ""},
		"a command between":         {append([]byte{4, 2, 'x', 'y'}, hi...), "hi"},
		"no delimiter":              {append(bytes.Repeat([]byte{1, 1, 'a'}, 100), hi...), ""},
		"another message before it": {append([]byte{1, 1, 'a', 0, 1, 'b'}, hi...), "hi"},
		"a frame that is huge":      {append([]byte{3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, hi...), ""},
		"a frame that never comes":  {append([]byte{3, 0, 0, 0xff, 0, 0, 0, 0, 0}, hi...), ""},
		"a header that is huge": {append(notebook.Signed(key, "", strings.Repeat(" ", 100<<10)+streamHeader, parentHeader, "{}",
			`{"text":"no"}`), hi...), "hi"},
		"content that is no object": {
			append(notebook.Signed(key, "", streamHeader, parentHeader, "{}", `5`), hi...),
			"\n[A message of the kernel is left out: it cannot be decoded.]\nhi",
		},
		"other kinds are nothing": {append(notebook.Signed(key, "", `{"msg_type":"comm_open"}`, parentHeader, "{}", `5`), hi...), "hi"},
		"no text":                 {notebook.Signed(key, "", `{"msg_type":"display_data"}`, parentHeader, "{}", `{"data":{"text/html":"<b>","image/jpeg":"x"}}`), "<b>"},
		"no text at all":          {notebook.Signed(key, "", `{"msg_type":"display_data"}`, parentHeader, "{}", `{"data":{"b/c":{},"a":5}}`), ""},
		"nothing shown":           {notebook.Signed(key, "", `{"msg_type":"display_data"}`, parentHeader, "{}", `{"data":{}}`), ""},
		"data that is no object":  {notebook.Signed(key, "", `{"msg_type":"display_data"}`, parentHeader, "{}", `{"data":5}`), "\n[A message of the kernel is left out: it cannot be decoded.]\n"},
		"text that is no text":    {notebook.Signed(key, "", `{"msg_type":"display_data"}`, parentHeader, "{}", `{"data":{"text/plain":["a"]}}`), ""},
		"traceback": {notebook.Signed(key, "", `{"msg_type":"error"}`, parentHeader, "{}",
			`{"traceback":["a","\u001b[0;31mb\u001b[0m","\u001b[1;2;3;4mc"]}`), "a\nb\nc"},
		"a JPEG image":              {notebook.Signed(key, "", `{"msg_type":"display_data"}`, parentHeader, "{}", `{"data":{"image/jpeg":"x"}}`), "[A JPEG image is left out: only PNG is shown.]"},
		"Markdown before HTML":      {notebook.Signed(key, "", `{"msg_type":"display_data"}`, parentHeader, "{}", `{"data":{"text/html":"<b>","text/markdown":"**"}}`), "**"},
		"no traceback":              {notebook.Signed(key, "", `{"msg_type":"error"}`, parentHeader, "{}", `{"traceback":null}`), ""},
		"traceback that is no list": {notebook.Signed(key, "", `{"msg_type":"error"}`, parentHeader, "{}", `{"traceback":{}}`), "\n[A message of the kernel is left out: it cannot be decoded.]\n"},
		"colours in text":           {notebook.Signed(key, "stream", streamHeader, parentHeader, "{}", `{"text":"\u001b[0;31mb\u001b[0m\u001b[1;2;3;4mc\u001b[mc"}`), "b\x1b[1;2;3;4mc\x1b[mc"},
		"an image that is none": {notebook.Signed(key, "", `{"msg_type":"display_data"}`, parentHeader, "{}",
			`{"data":{"image/png":"\" onload=","text/plain":"x"}}`), "x\n[An image is left out: it cannot be decoded.]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, _ := notebook.Receive(c.data, key); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A message of any length leaves little, and it is what its ends were.
func TestReceiveHuge(t *testing.T) {
	t.Parallel()
	key := []byte("key")
	body := `{"name":"stdout","text":"begin` + strings.Repeat(`\n`, 30<<20) + `end"}`
	got, n := notebook.Receive(notebook.Signed(key, "stream", streamHeader, parentHeader, "{}", body), key)
	if n != 1 || !strings.HasPrefix(got, "begin\n\n") || !strings.HasSuffix(got, "\n\nend") || !strings.Contains(got, notebook.Shortened) {
		t.Errorf("got %d messages, %.20q to %q", n, got, got[max(0, len(got)-20):])
	}
	if len(got) > 2*notebook.Half+len(notebook.Shortened) {
		t.Errorf("%d bytes are left", len(got))
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("é", notebook.Half)
	if got := notebook.Texts(whole[:5], whole[5:]); got != whole {
		t.Errorf("%d bytes are left of %d that are not too many", len(got), len(whole))
	}
	var many []string
	for range 40 {
		many = append(many, "x"+whole)
	}
	got := notebook.Texts(append(many, "end")...)
	if want := strings.Repeat("é", notebook.Half/2-1); !strings.HasPrefix(got, "x"+want+notebook.Shortened) ||
		!strings.HasSuffix(got, "éend") || strings.ContainsRune(got, '�') {
		t.Errorf("got %.20q to %q, %d bytes", got, got[len(got)-20:], len(got))
	}
}

func FuzzReceive(f *testing.F) {
	key := []byte("key")
	f.Add(notebook.Signed(key, "stream", streamHeader, parentHeader, "{}", `{"name":"stdout","text":"hi"}`))
	f.Add(notebook.Signed(key, "", `{"msg_type":"error"}`, parentHeader, "{}", `{"traceback":["a"]}`))
	f.Add([]byte{3, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{4, 2, 'x', 'y', 1, 1, 'a', 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		if text, _ := notebook.Receive(data, key); len(text) > 2*notebook.Half+len(notebook.Shortened) {
			t.Errorf("%d bytes are left", len(text))
		}
	})
}

// FuzzClip holds that clipping changes nothing of what is short enough, however
// it arrives, and that what is left of a long string is JSON, and its ends.
func FuzzClip(f *testing.F) {
	f.Add([]byte(`{"a":"b\"c\\","d":["\u00e9\ud83d\ude00\n",1]}`), 1, "x\\\"é")
	f.Add([]byte(`"\`), 2, "\\")
	f.Add([]byte(`"\u12`), 3, "\U0001F600\x00")
	f.Fuzz(func(t *testing.T, text []byte, part int, unit string) {
		part = max(1, part)
		if got := notebook.Clip(text, part); !bytes.Equal(got, closed(text, got)) {
			t.Errorf("got %q, want %q", got, text)
		}
		if unit = strings.ToValidUTF8(unit, "?"); unit == "" || len(unit) > 64 {
			return
		}
		long := strings.Repeat(unit, 1+(notebook.HeadLimit+4*notebook.TailLimit+512<<10)/len(unit))
		data, err := json.Marshal([]string{"first", long, "last"})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if err := json.Unmarshal(notebook.Clip(data, max(part, 4096)), &got); err != nil {
			t.Fatalf("what is left is no JSON: %v", err)
		}
		if len(got) != 3 || got[0] != "first" || got[2] != "last" {
			t.Fatalf("got %d strings", len(got))
		}
		head, tail, cut := strings.Cut(got[1], notebook.Shortened)
		if !cut && got[1] != long || !strings.HasPrefix(long, head) || !strings.HasSuffix(long, tail) {
			t.Errorf("of %d bytes of %q, %d and %d are left, and are not its ends", len(long), unit, len(head), len(tail))
		}
	})
}

// closed is text, without the end that a clipper still holds back.
func closed(text, got []byte) []byte {
	if bytes.HasPrefix(text, got) && len(text) < notebook.HeadLimit {
		return text[:len(got)]
	}
	return text
}
