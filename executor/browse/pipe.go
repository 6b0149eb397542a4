package browse

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

const (
	// maxMessage is what is kept of a message; the rest is read and dropped.
	maxMessage = 16 << 20
	// writeTime bounds the sending of a command: a browser that reads nothing
	// for so long is stopped or broken.
	writeTime = 10 * time.Second
)

var (
	errEnded   = errors.New("the browser ended")
	errTabGone = errors.New("the tab was closed")
	errCrashed = errors.New("the page crashed")
)

// refusal is what the browser answers to a command that it cannot do.
type refusal struct {
	Code    int
	Message string
}

func (r *refusal) Error() string { return r.Message }

// message is a reply, or where it has no id an event. A session is a connection
// to one tab; "" is the browser's own.
type message struct {
	ID        int64           `json:"id"`
	Session   string          `json:"sessionId"`
	Method    string          `json:"method"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     *refusal        `json:"error"`
	truncated bool            // Result is the beginning of one
}

// pipe speaks the Chrome DevTools Protocol with a browser that was started with
// --remote-debugging-pipe: JSON texts, each with a zero byte after it. Its methods
// may be called concurrently. read is its one goroutine.
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
	session string
	reply   chan answer
}

type answer struct {
	message
	err error
}

func newPipe(in, out *os.File, events func(message)) *pipe {
	return &pipe{in: in, out: out, events: events, waiting: map[int64]waiter{}}
}

// call has the browser carry out a command and decodes its result, if any is
// asked for. The error is a *refusal where the browser says no.
func (p *pipe) call(ctx context.Context, session, method string, params map[string]any, result any) error {
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
	if err := json.Unmarshal(a.Result, result); err != nil {
		return fmt.Errorf("understanding the answer to %s: %w", method, err)
	}
	return nil
}

func (p *pipe) roundTrip(ctx context.Context, session, method string, params map[string]any) (answer, error) {
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

// send sends a command; its answer comes to reply.
func (p *pipe) send(session, method string, params map[string]any) (id int64, reply chan answer, err error) {
	reply = make(chan answer, 1)
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return 0, nil, errEnded
	}
	p.last++
	id = p.last
	p.waiting[id] = waiter{session, reply}
	p.mu.Unlock()
	command := map[string]any{"id": id, "method": method}
	if params != nil {
		command["params"] = params
	}
	if session != "" {
		command["sessionId"] = session
	}
	data, err := json.Marshal(command)
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

// read takes what the browser says until it ends.
func (p *pipe) read() {
	defer p.end()
	in := bufio.NewReaderSize(p.in, 64<<10)
	for {
		data, truncated, err := readMessage(in)
		if err != nil {
			return
		}
		m, ok := understand(data, truncated)
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

// understand decodes a message. Of one that was cut, only a reply is of use: its
// id comes first.
func understand(data []byte, truncated bool) (m message, ok bool) {
	if !truncated {
		return m, json.Unmarshal(data, &m) == nil
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

// drop answers the commands of a session that will not be answered any more.
func (p *pipe) drop(session string, reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, w := range p.waiting {
		if w.session == session {
			w.reply <- answer{err: reason}
			delete(p.waiting, id)
		}
	}
}

// end answers everything that waits.
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
