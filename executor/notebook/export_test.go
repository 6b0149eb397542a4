package notebook

import (
	"bufio"
	"bytes"
	"errors"
)

// Clip returns what is left of a JSON text that arrives in parts of that size.
func Clip(text []byte, part int) []byte {
	var c clipper
	for len(text) > 0 {
		n := min(part, len(text))
		_, _ = c.Write(text[:n])
		text = text[n:]
	}
	return c.out
}

// Launcher is the program that runs a kernel.
var Launcher = launcher

// SocketPair returns the two ends of the link to a kernel.
var SocketPair = socketPair

// HeadLimit and Half are limits that the tests go beyond.
const (
	HeadLimit = headLimit
	TailLimit = tailLimit
	Half      = half
	Shortened = shortened
)

// Receive reads all messages in data, signed with key, into one output. It
// returns the text, and how many messages were understood.
func Receive(data, key []byte) (text string, understood int) {
	p := &peer{in: bufio.NewReader(bytes.NewReader(data))}
	var out output
	for {
		m, err := signer{key}.receive(p)
		switch {
		case errors.Is(err, errForeign):
			continue
		case err != nil:
			return out.text(), understood
		}
		understood++
		m.addTo(&out)
	}
}

// Texts writes the texts one after the other and returns what is kept.
func Texts(texts ...string) string {
	var o output
	for _, t := range texts {
		o.write(t)
	}
	return o.text()
}

// Signed returns a message, framed and signed with key.
func Signed(key []byte, topic string, parts ...string) []byte {
	mac := signer{key}.mac()
	frames := [][]byte{[]byte(topic), []byte(delimiter), nil}
	for _, p := range parts {
		_, _ = mac.Write([]byte(p))
		frames = append(frames, []byte(p))
	}
	frames[2] = hexOf(mac.Sum(nil))
	var out bytes.Buffer
	for i, f := range frames {
		flags := byte(flagMore)
		if i == len(frames)-1 {
			flags = 0
		}
		out.Write([]byte{flags | flagLong, 0, 0, 0, 0, byte(len(f) >> 24), byte(len(f) >> 16), byte(len(f) >> 8), byte(len(f))})
		out.Write(f)
	}
	return out.Bytes()
}

func hexOf(b []byte) []byte {
	const digits = "0123456789abcdef"
	var out []byte
	for _, c := range b {
		out = append(out, digits[c>>4], digits[c&15])
	}
	return out
}
