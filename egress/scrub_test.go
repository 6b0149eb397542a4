package egress_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"math/rand/v2"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/actiond/actiond/egress"
)

// naive replaces every byte of every occurrence.
func naive(text []byte, forms [][]byte) []byte {
	result := slices.Clone(text)
	for at := range text {
		for _, form := range forms {
			if bytes.HasPrefix(text[at:], form) {
				copy(result[at:], strings.Repeat("*", len(form)))
			}
		}
	}
	return result
}

// cuts returns a text in pieces whose lengths are random.
type cuts struct {
	text   []byte
	most   int
	random *rand.Rand
}

func (c *cuts) Read(p []byte) (int, error) {
	if len(c.text) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.text[:min(len(c.text), c.random.IntN(c.most+1))])
	c.text = c.text[n:]
	if len(c.text) == 0 && c.random.IntN(2) == 0 {
		return n, io.EOF
	}
	return n, nil
}

func scrub(tb testing.TB, from io.Reader, length int64, forms [][]byte) []byte {
	tb.Helper()
	got, err := io.ReadAll(egress.Scrub(io.NopCloser(from), length, forms))
	if err != nil {
		tb.Fatal(err)
	}
	return got
}

func TestScrub(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                    "",
		"secretsecret":        "************",
		"a secret, a secre":   "a ******, a secre",
		"sesecret":            "se******",
		"secret1 crets secre": "******* crets secre",
		"secretsthing":        "************", // two forms overlap
		"xabababax":           "x*******x",    // one form overlaps itself
	} {
		forms := [][]byte{[]byte("secret"), []byte("secret1"), []byte("tsthing"), []byte("aba")}
		for _, length := range []int64{-1, int64(len(text))} {
			for name, from := range map[string]io.Reader{
				"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text)), "end": iotest.DataErrReader(strings.NewReader(text)),
			} {
				if got := scrub(t, from, length, forms); string(got) != want {
					t.Errorf("%q (%s, %d): got %q, want %q", text, name, length, got, want)
				}
			}
		}
	}
}

// part is what came of a body at once, and when.
type part struct {
	at   time.Duration
	text string
	err  error
}

// send is a part of a body that comes after a time.
type send struct {
	after time.Duration
	text  string
}

// parts returns how a body leaves the scrubber whose parts come so, and which ends with err, or io.EOF for nil.
func parts(t *testing.T, length int64, forms [][]byte, sent []send, err error) (got []part) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		r, w := io.Pipe()
		go func() {
			for _, one := range sent {
				time.Sleep(one.after) // of the bubble
				_, _ = w.Write([]byte(one.text))
			}
			time.Sleep(time.Hour)
			_ = w.CloseWithError(err)
		}()
		begun := time.Now()
		for body := egress.Scrub(r, length, forms); ; {
			buf := make([]byte, 64)
			n, err := body.Read(buf)
			got = append(got, part{time.Since(begun), string(buf[:n]), err})
			if err != nil {
				return
			}
		}
	})
	return got
}

const pause = 100 * time.Millisecond // after which a stream is not held back

// TestScrubStream: a stream is passed on at once up to a byte that no value can have, and what is behind that
// after a pause.
func TestScrubStream(t *testing.T) {
	t.Parallel()
	forms := [][]byte{[]byte("0123456789abcdef0123")}
	broken := errors.New("broken")
	for _, tt := range []struct {
		sent []send
		err  error
		want []part
	}{
		{[]send{{0, "data: 1\n\n"}, {time.Second, "data: 2\n\n"}}, nil, []part{{0, "data: 1\n\n", nil}, {time.Second, "data: 2\n\n", nil}, {time.Hour + time.Second, "", io.EOF}}},
		{[]send{{0, "a word"}}, nil, []part{{0, "a ", nil}, {pause, "word", nil}, {time.Hour, "", io.EOF}}},
		{[]send{{0, "wor"}, {pause / 2, "ds"}, {pause / 2, "\x00"}}, nil, []part{{pause, "words\x00", nil}, {time.Hour + pause, "", io.EOF}}},
		{[]send{{0, "012345678"}, {time.Second, "9abcdef0123"}}, nil, []part{{time.Second, "*", nil}, {time.Second + pause, strings.Repeat("*", 19), nil}, {time.Hour + time.Second, "", io.EOF}}},
		{[]send{{0, "x01234567"}}, nil, []part{{pause, "x", nil}, {time.Hour, "01234567", nil}, {time.Hour, "", io.EOF}}},
		{[]send{{0, "x01234567"}}, broken, []part{{pause, "x", nil}, {time.Hour, "", broken}}},
		{[]send{{0, "x0123456"}}, broken, []part{{pause, "x0123456", nil}, {time.Hour, "", broken}}},
	} {
		if got := parts(t, -1, forms, tt.sent, tt.err); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%v: got %v, want %v", tt.sent, got, tt.want)
		}
	}
}

// TestAttackHeldBack: the parts in which a body comes, and the times, do not show how much of the agent's text in
// it a secret begins with: only whether all of its first eight bytes are there does, which must be guessed at once.
func TestAttackHeldBack(t *testing.T) {
	t.Parallel()
	const value, begin = "0123456789abcdef0123", 8
	shape := func(length int64, sent []send, err error) (shown []part) {
		for _, one := range parts(t, length, [][]byte{[]byte(value), []byte("012345678%39abcdef0123")}, sent, err) {
			shown = append(shown, part{one.at, strings.Repeat(".", len(one.text)), one.err})
		}
		return shown
	}
	for name, tt := range map[string]struct {
		sent func(guess string) []send
		err  error
	}{
		"at the end":      {func(guess string) []send { return []send{{0, "an echo of " + guess}} }, nil},
		"without a blank": {func(guess string) []send { return []send{{0, "echo=" + guess}} }, nil},
		"as a part":       {func(guess string) []send { return []send{{0, "echo="}, {0, guess}} }, nil},
		"before a pause":  {func(guess string) []send { return []send{{0, "echo="}, {time.Second, guess}, {time.Second, "="}} }, nil},
		"over a pause": {func(guess string) []send {
			return []send{{0, guess[:len(guess)/2]}, {time.Second, guess[len(guess)/2:]}}
		}, nil},
		"again and again": {func(guess string) []send { return []send{{0, strings.Repeat(guess, 30)}, {time.Second, guess}} }, nil},
		"before more": {func(guess string) []send {
			return []send{{0, guess}, {pause / 2, strings.Repeat("y", 15)}, {pause / 2, "y"}}
		}, nil},
		"before what is none": {func(guess string) []send { return []send{{0, guess + "yyy"}, {time.Second, "y"}} }, nil},
		"before an error":     {func(guess string) []send { return []send{{0, "echo=" + guess}} }, io.ErrUnexpectedEOF},
	} {
		for known := range len(value) - 1 {
			right, wrong := value[:known+1], value[:known]+"x"
			for _, length := range []int64{-1, 1000} {
				if known == begin-1 && (length < 0 || tt.err != nil) {
					continue
				}
				if got, want := shape(length, tt.sent(right), tt.err), shape(length, tt.sent(wrong), tt.err); !reflect.DeepEqual(got, want) {
					t.Errorf("%s, of length %d: %q comes as %v, and %q as %v", name, length, right, got, wrong, want)
				}
			}
		}
	}
}

// TestAttackPause: a value whose parts come late, which a sandbox brings about by what it does not read, or before
// an error, is hidden but for less than its first eight bytes.
func TestAttackPause(t *testing.T) {
	t.Parallel()
	const value, begin = "0123456789abcdef0123", 8
	for first := range len(value) {
		for second := first; second < len(value); second++ {
			for _, err := range []error{nil, io.ErrUnexpectedEOF} {
				sent := []send{{0, "x" + value[:first]}, {time.Minute, value[first:second]}, {time.Minute, value[second:] + "y"}}
				if err != nil {
					sent = sent[:2]
				}
				var all strings.Builder
				for _, one := range parts(t, -1, [][]byte{[]byte(value)}, sent, err) {
					all.WriteString(one.text)
				}
				got := all.String()
				shown := strings.TrimRight(strings.TrimPrefix(strings.TrimSuffix(got, "y"), "x"), "*")
				if len(shown) >= begin || !strings.HasPrefix(value, shown) || err == nil && len(got) != len(value)+2 {
					t.Errorf("cut at %d and %d, %v: got %q", first, second, err, got)
				}
			}
		}
	}
}

// TestAttackPauseOfMany: a whole value before a pause is hidden, also where it has a longer form.
func TestAttackPauseOfMany(t *testing.T) {
	t.Parallel()
	const value = "sk-0123456789abcdef"
	for _, text := range []string{"data: " + value, value, "echo=" + value + "="} {
		var got strings.Builder
		for _, one := range parts(t, -1, egress.Forms(egress.Secret{Name: "A", Value: value}), []send{{0, text}, {time.Minute, "\n"}}, nil) {
			got.WriteString(one.text)
		}
		if want := strings.Replace(text, value, strings.Repeat("*", len(value)), 1) + "\n"; got.String() != want {
			t.Errorf("got %q, want %q", got.String(), want)
		}
	}
}

// TestAttackShortValue: of a short value at most half can be found, whatever forms it has.
func TestAttackShortValue(t *testing.T) {
	t.Parallel()
	forms := egress.Forms(egress.Secret{Name: "A", Value: "abcde///"}) // also abcde%2F%2F%2F
	for _, form := range forms {
		for n := range form {
			got := parts(t, -1, forms, []send{{0, "x" + string(form[:n])}}, io.ErrUnexpectedEOF)
			if shown := len(got[0].text) - 1; shown >= 4 {
				t.Errorf("%d bytes of %q are shown", shown, form)
			}
		}
	}
}

// TestForms: what programs make of a value is found.
func TestForms(t *testing.T) {
	t.Parallel()
	forms := egress.Forms(egress.Secret{Name: "API", Format: "Basic user:{}", Value: token})
	hex := strings.NewReplacer("%2F", "%2f", "%2B", "%2b", "%3D", "%3d")
	for name, text := range map[string]string{
		"value": token, "query": url.QueryEscape(token), "path": url.PathEscape(token), "lower case": hex.Replace(url.QueryEscape(token)),
		"php": `sk-0123456789\/+abcdef==`, "gson": `sk-0123456789/+abcdef\u003d\u003d`,
		"python": "sk-0123456789/%2Babcdef%3D%3D", "header": base64.StdEncoding.EncodeToString([]byte("user:" + token)),
	} {
		if got := string(scrub(t, strings.NewReader("a "+text+" b"), -1, forms)); strings.Trim(got[2:len(got)-2], "*=") != "" {
			t.Errorf("%s: got %s", name, got)
		}
	}
	for before := range 7 {
		for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawURLEncoding} {
			text := encoding.EncodeToString([]byte(strings.Repeat("x", before) + token + strings.Repeat("y", 5)))
			got := string(scrub(t, strings.NewReader(text), -1, forms))
			if len(got) != len(text) || strings.Count(got, "*") < len(token)*4/3-2 {
				t.Errorf("%d bytes before it: got %s", before, got)
			}
		}
	}
}

// FuzzScrub compares with a naive replacement, over random cuts.
func FuzzScrub(f *testing.F) {
	f.Add([]byte("xabababaxab"), []byte("aba"), []byte("ax"), uint64(1), uint16(3))
	f.Add([]byte("secretsecret1tsthing"), []byte("secret"), []byte("secret1"), uint64(2), uint16(1))
	f.Add(bytes.Repeat([]byte("abcab"), 5<<10), bytes.Repeat([]byte("abcab"), 20), []byte("cabab"), uint64(3), uint16(20<<10))
	f.Add([]byte("no forms"), []byte{}, []byte{}, uint64(2), uint16(1))
	f.Fuzz(func(t *testing.T, text, one, other []byte, seed uint64, most uint16) {
		if len(text) > 64<<10 || len(text) > 2000*(int(most)+1) || len(one)+len(other) > 512 {
			return // these take long, and find nothing more
		}
		var forms [][]byte
		for _, form := range [][]byte{one, other} {
			if len(form) > 0 {
				forms = append(forms, visible(form))
			}
		}
		from := &cuts{slices.Clone(text), int(most) + 1, rand.New(rand.NewPCG(seed, 0))}
		length := int64(len(text))
		if seed%2 == 0 {
			length = -1
		}
		if got, want := scrub(t, from, length, forms), naive(text, forms); !bytes.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

// visible returns text as a form may be.
func visible(text []byte) []byte {
	text = slices.Clone(text)
	for i, c := range text {
		if c <= ' ' || c >= 0x7f {
			text[i] = '!' + c%94
		}
	}
	return text
}

// BenchmarkScrub has the forms of a token of 40 characters, and a body without it.
func BenchmarkScrub(b *testing.B) {
	forms := egress.Forms(egress.Secret{Name: "A", Value: "ghp_0123456789abcdefABCDEF0123456789abcd"})
	body := bytes.Repeat([]byte(`{"id": 12345, "name": "some text of a response of an API", "url": "https://api.example.com/v1/things/12345"},`), 10<<10)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := io.Copy(io.Discard, egress.Scrub(io.NopCloser(bytes.NewReader(body)), -1, forms)); err != nil {
			b.Fatal(err)
		}
	}
}
