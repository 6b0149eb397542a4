package browse

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/target"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	// maxMessage is the size of the part of a message that is kept, in bytes. The
	// pipe reads and drops the rest.
	maxMessage = 16 << 20
	// writeTime bounds the sending of a command: a browser that reads nothing
	// for that long is stopped or broken.
	writeTime = 10 * time.Second
)

var (
	errEnded   = errors.New("the browser ended")
	errTabGone = errors.New("the tab was closed")
	errCrashed = errors.New("the page crashed")
)

// refusal is the browser's error reply to a command.
type refusal struct {
	Message string `json:"message"`
}

func (r *refusal) Error() string { return r.Message }

// message is a command, a reply or, without an id, an event. A session is a
// connection to one tab; "" is the session of the browser itself.
type message struct {
	ID        int64            `json:"id,omitzero"`
	Session   target.SessionID `json:"sessionId,omitzero"`
	Method    string           `json:"method,omitzero"`
	Params    jsontext.Value   `json:"params,omitzero"`
	Result    jsontext.Value   `json:"result,omitzero"`
	Error     *refusal         `json:"error,omitzero"`
	truncated bool             // Result is incomplete
}

// tolerant accepts the texts of pages, which may contain half a surrogate pair.
var tolerant = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// caller is a [tab] or the [chromium] itself.
type caller interface {
	call(ctx context.Context, method string, params, result any) error
}

// ask has the browser carry out a command and returns the result. The error is a
// *refusal if the browser refuses the command.
func ask[P, R any](ctx context.Context, on caller, command cdp.Command[P, R], params P) (result R, err error) {
	err = on.call(ctx, command.Method, params, &result)
	return result, err
}

// tell is ask for a command without a result.
func tell[P any](ctx context.Context, on caller, command cdp.Command[P, cdp.Empty], params P) error {
	return on.call(ctx, command.Method, params, nil)
}

// post sends a command and does not wait for the reply.
func post[P, R any](p *pipe, session target.SessionID, command cdp.Command[P, R], params P) error {
	_, _, err := p.send(session, command.Method, params)
	return err
}

// payload decodes the parameters of an event. Fields that it cannot decode are zero.
func payload[E any](m message, _ cdp.Event[E]) (e E) {
	_ = json.Unmarshal(m.Params, &e, tolerant)
	return e
}

// pipe speaks the Chrome DevTools Protocol with a browser that was started with
// --remote-debugging-pipe: JSON texts, each followed by a zero byte. Its methods
// may be called concurrently. It owns one goroutine, read.
type pipe struct {
	in     *os.File // deadlines work on both
	out    *os.File
	events func(message) // called in order, before the replies that come later

	writing sync.Mutex

	mu      sync.Mutex
	last    int64
	waiting map[int64]waiter
	ended   bool
}

type waiter struct {
	session target.SessionID
	reply   chan answer
}

type answer struct {
	message
	err error
}

func newPipe(in, out *os.File, events func(message)) *pipe {
	return &pipe{in: in, out: out, events: events, waiting: map[int64]waiter{}}
}

// callIn sends a command in a session, waits for the reply, and decodes the result
// unless result is nil. An *answer gets the reply as it is, even if truncated.
func (p *pipe) callIn(ctx context.Context, session target.SessionID, method string, params, result any) error {
	a, err := p.roundTrip(ctx, session, method, params)
	if err != nil || result == nil {
		return err
	}
	if raw, ok := result.(*answer); ok {
		*raw = a
		return nil
	}
	if a.truncated {
		return fmt.Errorf("the answer to %s is longer than %d bytes", method, maxMessage)
	}
	if err := json.Unmarshal(a.Result, result, tolerant); err != nil {
		return fmt.Errorf("decoding the answer to %s: %w", method, err)
	}
	return nil
}

func (p *pipe) roundTrip(ctx context.Context, session target.SessionID, method string, params any) (answer, error) {
	id, reply, err := p.send(session, method, params)
	if err != nil {
		return answer{}, err
	}
	select {
	case a := <-reply:
		if a.err == nil && a.Error != nil {
			a.err = a.Error
		}
		return a, a.err
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.waiting, id)
		p.mu.Unlock()
		return answer{}, context.Cause(ctx)
	}
}

// send sends a command. The pipe sends the answer to reply.
func (p *pipe) send(session target.SessionID, method string, params any) (id int64, reply chan answer, err error) {
	reply = make(chan answer, 1)
	encoded, err := json.Marshal(params, tolerant)
	if err != nil {
		return 0, nil, err
	}
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return 0, nil, errEnded
	}
	p.last++
	id = p.last
	p.waiting[id] = waiter{session, reply}
	p.mu.Unlock()
	data, err := json.Marshal(message{ID: id, Session: session, Method: method, Params: encoded}, tolerant)
	if err != nil {
		return 0, nil, err
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	if err = p.out.SetWriteDeadline(time.Now().Add(writeTime)); err == nil {
		_, err = p.out.Write(append(data, 0))
	}
	if err != nil {
		p.end() // half a command may have been sent
		return 0, nil, errEnded
	}
	return id, reply, nil
}

// read handles the messages of the browser until it ends.
func (p *pipe) read() {
	defer p.end()
	in := bufio.NewReaderSize(p.in, 64<<10)
	for {
		data, truncated, err := readMessage(in)
		if err != nil {
			return
		}
		m, ok := decodeMessage(data, truncated)
		switch {
		case !ok:
		case m.ID == 0:
			p.events(m)
		default:
			p.mu.Lock()
			w, found := p.waiting[m.ID]
			delete(p.waiting, m.ID)
			p.mu.Unlock()
			if found {
				w.reply <- answer{message: m}
			}
		}
	}
}

// readMessage reads up to the next zero byte.
func readMessage(in *bufio.Reader) (data []byte, truncated bool, err error) {
	for {
		part, err := in.ReadSlice(0)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return nil, false, err
		}
		data = append(data, part[:min(len(part), maxMessage+1-len(data))]...)
		if err == nil {
			truncated = len(data) > maxMessage
			return bytes.TrimSuffix(data, []byte{0}), truncated, nil
		}
	}
}

// decodeMessage decodes a message. A truncated message is of use only if it is a
// reply, which begins with its id.
func decodeMessage(data []byte, truncated bool) (m message, ok bool) {
	if !truncated {
		return m, json.Unmarshal(data, &m, tolerant) == nil
	}
	const before = `,"result":`
	head := data[:min(len(data), 64)]
	if _, err := fmt.Sscanf(string(head), `{"id":%d`, &m.ID); err != nil {
		return m, false
	}
	at := bytes.Index(head, []byte(before))
	if at < 0 {
		return m, false
	}
	m.Result, m.truncated = data[at+len(before):], true
	return m, true
}

// drop ends the commands of a session that the browser will not answer.
func (p *pipe) drop(session target.SessionID, reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, w := range p.waiting {
		if w.session == session {
			w.reply <- answer{err: reason}
			delete(p.waiting, id)
		}
	}
}

// end ends all commands that wait for a reply.
func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, w := range p.waiting {
		w.reply <- answer{err: errEnded}
	}
	clear(p.waiting)
}

func (p *pipe) close() { _ = errors.Join(p.in.Close(), p.out.Close()) }
