package egress_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

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

// TestScrubHoldsNothingBack: a stream is passed on at once, but for what may be the beginning of a secret.
func TestScrubHoldsNothingBack(t *testing.T) {
	t.Parallel()
	r, w := io.Pipe()
	body := egress.Scrub(r, -1, [][]byte{[]byte("0123456789")})
	for sent, want := range map[string]string{"data: 1\n\n": "data: 1\n\n", "data: 0123456789": "data: **********", "data": "data"} {
		go w.Write([]byte(sent))
		got := make([]byte, len(want))
		if _, err := io.ReadFull(body, got); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	broken := errors.New("broken")
	go func() {
		_, _ = w.Write([]byte("0123"))
		_ = w.CloseWithError(broken)
	}()
	if got, err := io.ReadAll(body); string(got) != "0123" || !errors.Is(err, broken) {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestAttackHeldBack: the parts in which a body of a known length comes do not show whether it ends as a
// secret begins.
func TestAttackHeldBack(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"the end is 0123456", "the end is 012345x", "the end is xxxxxxx"} {
		body := egress.Scrub(io.NopCloser(strings.NewReader(text)), int64(len(text)), [][]byte{[]byte("0123456789")})
		var parts []int
		for {
			n, err := body.Read(make([]byte, 64))
			if err != nil {
				break
			}
			parts = append(parts, n)
		}
		if want := []int{len(text) - 9, 9}; !slices.Equal(parts, want) {
			t.Errorf("%q came in parts of %d, want %d", text, parts, want)
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
	f.Fuzz(func(t *testing.T, text, one, other []byte, seed uint64, most uint16) {
		if len(text) > 64<<10 || len(one)+len(other) > 512 {
			return // these take long, and find nothing more
		}
		var forms [][]byte
		for _, form := range [][]byte{one, other} {
			if len(form) > 0 {
				forms = append(forms, form)
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
