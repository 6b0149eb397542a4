package notebook

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strings"
	"time"
)

const (
	delimiter     = "<IDS|MSG>"
	maxIdentities = 8
	maxSignature  = 128
	maxHeader     = 64 << 10
	// smallContent is read as it is; larger content goes through a clipper.
	smallContent = 1 << 20
)

// message has the parts of a kernel's message that the server reads.
type message struct {
	Type, Parent string // of the header, and the id of the message that it answers
	content      []byte
}

// header is the first part of a message; of a kernel's, only the fields needed.
type header struct {
	ID       string `json:"msg_id"`
	Session  string `json:"session"`
	Username string `json:"username"`
	Date     string `json:"date"`
	Type     string `json:"msg_type"`
	Version  string `json:"version"`
}

// content has the members that are read of the contents of all kinds of messages. None
// takes much more memory than the message did.
type content struct {
	Text           string      `json:"text"`            // stream
	Data           shown       `json:"data"`            // display_data, execute_result
	Traceback      few[string] `json:"traceback"`       // error
	ExecutionState string      `json:"execution_state"` // status
	Status         string      `json:"status"`          // execute_reply
	Payload        few[struct {
		Source string `json:"source"`
	}] `json:"payload"` // execute_reply
}

// shown is something to be shown, in the forms that are of use here.
type shown struct {
	Plain    *text `json:"text/plain"`
	Markdown *text `json:"text/markdown"`
	LaTeX    *text `json:"text/latex"`
	HTML     *text `json:"text/html"`
	SVG      *text `json:"image/svg+xml"`
	PNG      *text `json:"image/png"`
	JPEG     *text `json:"image/jpeg"`
}

// text returns a JSON string, and "" for any other value.
type text string

// UnmarshalJSON never fails: data is one value.
func (t *text) UnmarshalJSON(data []byte) error {
	if data[0] != '"' {
		return nil
	}
	return json.Unmarshal(data, (*string)(t))
}

// few holds the first elements of a list; the rest is skipped. An element that
// is empty takes more memory than its two bytes.
type few[T any] []T

const maxFew = 10_000

// UnmarshalJSON decodes a list, or null.
func (f *few[T]) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	first, err := d.Token()
	switch {
	case err != nil || first == nil:
		return err
	case first != json.Delim('['):
		return fmt.Errorf("%v is no list", first)
	}
	for d.More() && len(*f) < maxFew {
		var v T
		if err := d.Decode(&v); err != nil {
			return err
		}
		*f = append(*f, v)
	}
	return nil
}

// executeRequest asks for a cell to be run. With stop_on_error the
// kernel would drop its queue after an error, and the next cell with it.
type executeRequest struct {
	Code            string            `json:"code"`
	Silent          bool              `json:"silent"`
	StoreHistory    bool              `json:"store_history"`
	UserExpressions map[string]string `json:"user_expressions"`
	AllowStdin      bool              `json:"allow_stdin"`
	StopOnError     bool              `json:"stop_on_error"`
}

type shutdownRequest struct {
	Restart bool `json:"restart"`
}

// signer signs messages with the key of a kernel, as hmac-sha256.
type signer struct{ key []byte }

func (s signer) mac() hash.Hash { return hmac.New(sha256.New, s.key) }

// request builds a message with a new id.
func (s signer) request(kind string, body any) (id string, frames [][]byte, err error) {
	id = rand.Text()
	h, err := json.Marshal(header{
		ID: id, Session: "actiond", Username: "actiond", Type: kind, Version: "5.3",
		Date: time.Now().UTC().Format(time.RFC3339Nano),
	})
	if err != nil {
		return "", nil, err
	}
	c, err := json.Marshal(body)
	if err != nil {
		return "", nil, err
	}
	frames = [][]byte{h, []byte("{}"), []byte("{}"), c}
	mac := s.mac()
	for _, f := range frames {
		_, _ = mac.Write(f) // never fails
	}
	signature := []byte(hex.EncodeToString(mac.Sum(nil)))
	return id, append([][]byte{[]byte(delimiter), signature}, frames...), nil
}

// errForeign is a message that is not for us or not understood. The one after
// it may be read.
var errForeign = errors.New("a message that is not signed or not in order")

// receive reads the next message. After an error other than errForeign nothing
// more can be read.
func (s signer) receive(p *peer) (message, error) {
	const notYet = -1
	first := notYet // the frame after the delimiter
	var parts [5][]byte
	var clip clipper
	mac := s.mac()
	err := p.frames(func(i int, frame *io.LimitedReader) (err error) {
		switch {
		case first == notYet:
			var id []byte
			if id, err = readAll(frame, maxHeader); err == nil && string(id) == delimiter {
				first = i + 1
			} else if i == maxIdentities {
				return fmt.Errorf("%w: no delimiter", errProtocol)
			}
		case i == first:
			parts[0], err = readAll(frame, maxSignature)
		case i-first < 3:
			parts[i-first], err = readAll(io.TeeReader(frame, mac), maxHeader)
		case i-first == 3: // the metadata, which is only signed
			_, err = io.Copy(mac, frame)
		case i-first == 4 && frame.N <= smallContent:
			parts[4], err = readAll(io.TeeReader(frame, mac), smallContent)
		case i-first == 4:
			_, err = io.Copy(&clip, io.TeeReader(frame, mac))
			parts[4] = clip.out
		}
		return err // what follows are buffers
	})
	if err != nil {
		return message{}, err
	}
	signature, err := hex.DecodeString(string(parts[0]))
	if err != nil || !hmac.Equal(signature, mac.Sum(nil)) || clip.tooLong {
		return message{}, errForeign
	}
	var own, parent header
	if json.Unmarshal(parts[1], &own) != nil || json.Unmarshal(parts[2], &parent) != nil {
		return message{}, errForeign
	}
	return message{Type: own.Type, Parent: parent.ID, content: parts[4]}, nil
}

// readAll reads a frame of at most limit bytes. A longer one is cut, and its
// message is not in order then.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	var b bytes.Buffer
	_, err := b.ReadFrom(io.LimitReader(r, limit))
	return b.Bytes(), err
}

// reply reports whether a cell's reply says that it called exit, and that it failed: some errors,
// such as that of an unknown magic, have no message of their own.
func (m message) reply() (exits, failed bool) {
	var c content
	if err := json.Unmarshal(m.content, &c); err != nil {
		return false, false
	}
	for _, p := range c.Payload {
		exits = exits || p.Source == "ask_exit"
	}
	return exits, c.Status == "error"
}

// tellsInterrupt reports whether a message shows that the cell was interrupted: as
// a traceback, or in a word where a second interrupt cut that short.
func (m message) tellsInterrupt() bool {
	var c content
	return m.Type == "error" || m.Type == "stream" && len(m.content) < maxHeader &&
		json.Unmarshal(m.content, &c) == nil && strings.TrimSpace(c.Text) == "KeyboardInterrupt"
}

// addTo adds the data of a message to a cell's output, and reports whether it
// says that the kernel is idle.
func (m message) addTo(o *output) (idle bool) {
	switch m.Type {
	case "stream", "display_data", "execute_result", "error", "status":
	default:
		return false
	}
	var c content
	if err := json.Unmarshal(m.content, &c); err != nil {
		o.write("\n[A message of the kernel is left out: it cannot be decoded.]\n")
		return false
	}
	switch m.Type {
	case "stream":
		o.write(c.Text)
	case "display_data", "execute_result":
		o.show(c.Data)
	case "error":
		o.write(anyColour().ReplaceAllString(strings.Join(c.Traceback, "\n"), ""))
		o.raised = true
	case "status":
		return c.ExecutionState == "idle"
	}
	return false
}
