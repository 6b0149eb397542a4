package edit

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/korean"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/traditionalchinese"

	"github.com/actiond/actiond/internal/lazyregexp"
)

// guessSample bounds the bytes with the high bit that a guess examines; more bytes only cost time.
const guessSample = 4096

// legacy are the charsets that files without a mark are guessed to be in, the likeliest first. A statistical detector
// (ICU's, in Go) was tried on short texts: it reports "café crème" as Czech and "Привет" as Arabic. In a few words only
// the combination of letters tells these charsets apart.
var legacy = []candidate{
	{"windows-1252", charmap.Windows1252, letters("éèêëàâäáãåçñóòôöúùûüíìîïøæœß")},
	{"windows-1251", charmap.Windows1251, cyrillic},
	{"koi8-r", charmap.KOI8R, cyrillic},
	{"ibm866", charmap.CodePage866, cyrillic},
	{"windows-1250", charmap.Windows1250, letters("áčďéěíňóřšťúůýžąćęłńśźżőűäöüăâî")},
	{"windows-1253", charmap.Windows1253, letters("αεηιουνσςτρκπλμάέίόή")},
	{"windows-1254", charmap.Windows1254, letters("çğıöşü\u0307")},
	{"windows-1255", charmap.Windows1255, letters("אבדהולמנערשתיםן")},
	{"gb18030", simplifiedchinese.GB18030, nil},
	{"shift_jis", japanese.ShiftJIS, nil},
	{"euc-jp", japanese.EUCJP, nil},
	{"euc-kr", korean.EUCKR, nil},
	{"big5", traditionalchinese.Big5, nil},
}

var cyrillic = letters("оеаинтсрвлкмя")

type candidate struct {
	name   string
	coding encoding.Encoding
	common func(rune) bool // the usual letters beyond ASCII; nil for East Asian charsets of two bytes
}

func letters(lower string) func(rune) bool {
	return func(r rune) bool { return strings.ContainsRune(lower, unicode.ToLower(r)) }
}

var declaration = lazyregexp.New(`(?i)(?:coding|charset|encoding)\s*[:=]\s*["']?([a-z][-\w]{2,30})`)

// guessCharset returns the most likely charset of bytes that are not UTF-8. It uses a declaration in the first lines,
// as in Python, XML and HTML; else UTF-8 if most bytes are valid; else the frequency of letters.
func guessCharset(raw []byte) charset {
	if c, ok := declared(raw); ok {
		return c
	}
	if mostlyUTF8(raw) {
		return utf8Charset
	}
	sample := highSample(raw)
	best, bestScore := charset{legacy[0].name, legacy[0].coding}, 0.0
	for _, c := range legacy {
		if score, ok := c.score(sample); ok && score > bestScore+0.05 {
			best, bestScore = charset{c.name, c.coding}, score
		}
	}
	return best
}

func declared(raw []byte) (charset, bool) {
	head := raw[:min(len(raw), 512)]
	found := declaration().FindSubmatch(head)
	if found == nil {
		return charset{}, false
	}
	name := strings.ToLower(string(found[1]))
	for _, label := range []string{name, strings.ReplaceAll(name, "-", ""), strings.ReplaceAll(name, "_", "-")} {
		coding, err := htmlindex.Get(label)
		if err != nil {
			continue
		}
		c := charset{name, coding}
		if _, ok := c.decode(raw); ok {
			return c, true
		}
	}
	return charset{}, false
}

// mostlyUTF8 reports whether valid characters of several bytes outnumber invalid bytes.
func mostlyUTF8(raw []byte) bool {
	whole, broken := 0, 0
	for i := 0; i < len(raw) && whole+broken < guessSample; {
		if raw[i] < utf8.RuneSelf {
			i++
			continue
		}
		_, size := utf8.DecodeRune(raw[i:])
		if size > 1 {
			whole++
		} else {
			broken++
		}
		i += size
	}
	return whole >= 2*broken
}

// highSample returns the lines that have bytes with the high bit, up to guessSample such bytes.
func highSample(raw []byte) []byte {
	var sample []byte
	seen := 0
	for len(raw) > 0 && seen < guessSample {
		end := slices.Index(raw, '\n') + 1
		if end == 0 {
			end = len(raw)
		}
		cut := min(end, guessSample)
		for cut < min(end, guessSample+16) && raw[cut] >= 0x40 { // not between the bytes of one character
			cut++
		}
		line := raw[:cut]
		raw = raw[end:]
		high := 0
		for _, b := range line {
			if b >= utf8.RuneSelf {
				high++
			}
		}
		if high > 0 {
			sample = append(sample, line...)
			seen += high
		}
	}
	return sample
}

// score rates bytes as text in a charset, per byte with the high bit: about 2 for ordinary words, below 0 for nonsense.
// It returns false for bytes that are invalid in the charset.
func (c candidate) score(raw []byte) (float64, bool) {
	body, ok := charset{c.name, c.coding}.decode(raw)
	if !ok {
		return 0, false
	}
	total, high := 0.0, 0
	runes := []rune(body)
	for i, r := range runes {
		if r < utf8.RuneSelf {
			continue
		}
		high++
		if unicode.IsControl(r) || unicode.Is(unicode.Co, r) || !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return 0, false
		}
		var before, after rune
		if i > 0 {
			before = runes[i-1]
		}
		if i+1 < len(runes) {
			after = runes[i+1]
		}
		if c.common == nil {
			total += wideWeight(c.coding, r)
		} else {
			total += c.letterWeight(before, r, after)
		}
	}
	if high == 0 {
		return 0, false
	}
	score := total / float64(high)
	if c.common == nil && high < 4 {
		score -= 0.7 // any two bytes make a character of some of these, and of Chinese first
		if c.coding == korean.EUCKR {
			score -= 0.2
		}
	}
	return score, true
}

// letterWeight rates how natural a letter or sign beyond ASCII is between its neighbours.
func (c candidate) letterWeight(before, r, after rune) float64 {
	if !unicode.IsLetter(r) {
		switch {
		case unicode.IsLetter(before) && unicode.IsLetter(after) && r != '’':
			return -2 // a sign inside a word
		case strings.ContainsRune("“”‘’„–—…«»€°©®™§·№¿¡", r):
			return 1
		}
		return -0.5
	}
	weight := 0.5
	if c.common(r) {
		weight = 2
	}
	for _, other := range []rune{before, after} {
		switch {
		case !unicode.IsLetter(other):
		case script(other) != script(r):
			weight -= 3
		case script(r) == unicode.Latin && other >= utf8.RuneSelf:
			weight-- // accents seldom stand side by side
		}
	}
	if unicode.IsUpper(r) && unicode.IsLower(before) || unicode.IsLower(r) && unicode.IsUpper(after) {
		weight -= 2
	}
	return weight
}

func script(r rune) *unicode.RangeTable {
	for _, table := range []*unicode.RangeTable{unicode.Latin, unicode.Cyrillic, unicode.Greek, unicode.Hebrew} {
		if unicode.Is(table, r) {
			return table
		}
	}
	return nil
}

// wideWeight rates how frequent an East Asian character is. The standards put frequent characters into the first rows,
// which the first byte of the code names.
func wideWeight(coding encoding.Encoding, r rune) float64 {
	code, err := coding.NewEncoder().String(string(r))
	if err != nil || len(code) < 2 {
		return -1
	}
	lead := code[0]
	within := func(low, high byte) bool { return low <= lead && lead <= high }
	usual := false
	switch coding {
	case simplifiedchinese.GB18030:
		usual = len(code) == 2 && (within(0xb0, 0xd7) || lead == 0xa1 || lead == 0xa3) && code[1] >= 0xa1
	case japanese.ShiftJIS:
		usual = within(0x81, 0x83) || within(0x88, 0x97)
	case japanese.EUCJP:
		usual = lead == 0xa1 || lead == 0xa4 || lead == 0xa5 || within(0xb0, 0xcf)
	case korean.EUCKR:
		if within(0xb0, 0xc8) && code[1] >= 0xa1 {
			return 1.7 // half of the usual Chinese characters lie here too, so all of a text lying here says more
		}
		return -2
	case traditionalchinese.Big5:
		usual = within(0xa4, 0xc6) || lead == 0xa1
	}
	if usual {
		return 1.6
	}
	return -1
}
