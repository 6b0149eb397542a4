package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/actiond/actiond/internal/shorten"
)

const (
	// maxMessage bounds a message of a server, in bytes. A screenshot or two
	// fit.
	maxMessage = 16 << 20
	// maxValues bounds the values in a message: a decoded value takes up to 50
	// times the bytes of its text. The longest legitimate messages list some
	// hundred tools of some hundred values each.
	maxValues = 200_000
	// maxJunk bounds the bytes between two messages that are not messages.
	maxJunk = 1 << 20
	// maxAsked bounds the unanswered requests of a server.
	maxAsked = 64
	// writeTime bounds how long a server does not read its standard input.
	writeTime = 10 * time.Second
)

var errOutputEnded = errors.New("it closed its standard output")

// pipe is the connection to a server over its standard input and output; each
// line is a message. It protects the library, which queues all messages, from a
// hostile server.
type pipe struct {
	in    *os.File
	lines *bufio.Reader
	// hide masks the secrets in the server's output.
	hide func(string) string
	// fault gets the reason why the pipe reads no more messages. It must end
	// the server.
	fault func(error)
	// lost is told, for the log, the size of a message that cannot be decoded.
	lost  func(size int)
	junk  int
	rest  []byte // of a line that has several messages
	asked atomic.Int32
	// greeted is set when the server answered initialize.
	greeted atomic.Bool

	writing chan struct{} // holds an element while a message is written
	out     *os.File

	mu      sync.Mutex
	awaited map[jsonrpc.ID]request
}

// request is a request that the server has not answered.
type request struct {
	method string
	raw    *rawResult // may be nil
}

// rawResult receives the result of a call unchanged. The library turns its
// numbers into floats.
type rawResult struct{ text json.RawMessage }

// rawResultKey is the key of a *rawResult in the context of a call.
type rawResultKey struct{}

var _ sdk.Connection = (*pipe)(nil)

func newPipe(in, out *os.File, hide func(string) string, fault func(error), lost func(size int)) *pipe {
	return &pipe{
		in: in, lines: bufio.NewReaderSize(in, 64<<10), out: out, hide: hide, fault: fault, lost: lost,
		writing: make(chan struct{}, 1), awaited: map[jsonrpc.ID]request{},
	}
}

// Connect makes the pipe its own transport.
func (p *pipe) Connect(context.Context) (sdk.Connection, error) { return p, nil }

// SessionID is for other transports.
func (p *pipe) SessionID() string { return "" }

// Read returns the next answer or request of the server. It drops
// notifications, which no client waits for, and lines that are not messages, and
// repairs answers. It ignores the context: Close ends it.
func (p *pipe) Read(context.Context) (jsonrpc.Message, error) {
	for {
		line, err := p.line()
		if err != nil {
			p.fault(errOutputEnded)
			return nil, err
		}
		msg, err := p.message(line)
		if err != nil {
			p.fault(err)
			return nil, err
		}
		if msg != nil {
			return msg, nil
		}
	}
}

// line reads a line of at most maxMessage bytes, or the beginning of a longer
// one.
func (p *pipe) line() (line []byte, err error) {
	if line, p.rest = p.rest, nil; len(line) > 0 {
		return line, nil
	}
	for {
		part, err := p.lines.ReadSlice('\n')
		line = append(line, part...)
		if err == nil || len(line) > maxMessage || len(line) > 0 && !errors.Is(err, bufio.ErrBufferFull) {
			return line, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

// message decodes a line. It returns nil for a line to drop.
func (p *pipe) message(line []byte) (jsonrpc.Message, error) {
	line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\ufeff")))
	switch {
	case len(line) == 0:
		return nil, p.drop(line)
	case len(line) > maxMessage:
		return nil, fmt.Errorf("it printed more than %d MiB without the end of a line", maxMessage>>20)
	case line[0] != '{':
		return nil, p.drop(line)
	}
	if line = p.first(line); values(line) > maxValues {
		return nil, fmt.Errorf("it sent a message of more than %d values", maxValues)
	}
	if response := p.answer(line); response != nil {
		p.junk = 0
		return response, nil
	}
	msg, err := jsonrpc.DecodeMessage(line)
	if err != nil {
		if bytes.Contains(line, []byte(`"jsonrpc"`)) {
			p.lost(len(line))
		}
		return nil, p.drop(line)
	}
	p.junk = 0
	request, ok := msg.(*jsonrpc.Request)
	switch {
	case !ok, !request.IsCall():
		return nil, nil //nolint:nilnil // a notification, or an answer that no client waits for
	case p.asked.Add(1) > maxAsked:
		return nil, fmt.Errorf("it has more than %d unanswered requests", maxAsked)
	}
	return msg, nil
}

// first returns the first JSON value of a line, and the line itself if it is not JSON. It keeps
// the rest for the next line.
func (p *pipe) first(line []byte) []byte {
	var value json.RawMessage
	decoder := json.NewDecoder(bytes.NewReader(line))
	err := decoder.Decode(&value)
	if err != nil {
		line = finite(line)
		decoder = json.NewDecoder(bytes.NewReader(line))
		err = decoder.Decode(&value)
	}
	if err != nil {
		return line
	}
	p.rest = bytes.TrimSpace(line[decoder.InputOffset():])
	return value
}

// answer returns the answer to a request of ours, repaired, or nil if the line is none. What
// makes it one is an id that is awaited: some servers get the rest of the message wrong.
func (p *pipe) answer(line []byte) *jsonrpc.Response {
	var wire struct {
		ID                    any
		Method, Result, Error json.RawMessage
	}
	err := json.Unmarshal(line, &wire)
	switch {
	case err != nil && firstID().Match(line):
		wire.ID = string(firstID().FindSubmatch(line)[1])
	case err != nil, !null(wire.Method), wire.Result == nil && wire.Error == nil:
		return nil
	}
	id, asked, ok := p.take(wire.ID)
	if !ok {
		return nil
	}
	response := &jsonrpc.Response{ID: id}
	switch {
	case err != nil:
		p.lost(len(line))
		response.Error = fmt.Errorf("it sent an answer that cannot be decoded: %w", err)
	case !null(wire.Error):
		response.Error = repairError(wire.Error)
	default:
		response.Result, response.Error = repairResult(asked.method, wire.Result)
	}
	if asked.raw != nil {
		asked.raw.text = response.Result
	}
	if asked.method == "initialize" {
		p.greeted.Store(true)
	}
	return response
}

// take returns the awaited request with an id, also if the id comes as a string, and forgets it.
func (p *pipe) take(value any) (id jsonrpc.ID, asked request, ok bool) {
	if text, is := value.(string); is {
		if number, err := strconv.ParseFloat(text, 64); err == nil { // ours are numbers
			value = number
		}
	}
	id, _ = jsonrpc.MakeID(value) // without a value, which is not awaited
	p.mu.Lock()
	defer p.mu.Unlock()
	asked, ok = p.awaited[id]
	delete(p.awaited, id)
	return id, asked, ok
}

// drop counts a line that is not a message.
func (p *pipe) drop(line []byte) error {
	if p.junk += len(line) + 1; p.junk <= maxJunk {
		return nil
	}
	return fmt.Errorf("it prints lines to standard output that are not messages of the protocol, such as %s",
		shorten.Quoted(p.hide(string(line)), 60))
}

// values estimates the number of JSON values by counting separators. The data
// need not be JSON.
func values(text []byte) (n int) {
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '[' || c == '{'):
			n++
		}
	}
	return n
}

// await registers a request, with raw to receive its result.
func (p *pipe) await(msg jsonrpc.Message, raw *rawResult) {
	if call, ok := msg.(*jsonrpc.Request); ok && call.IsCall() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.awaited[call.ID] = request{call.Method, raw}
	}
}

// forget undoes await.
func (p *pipe) forget(raw *rawResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.awaited, func(_ jsonrpc.ID, r request) bool { return r.raw == raw })
}

// Write sends a message. It returns an error if the server does not read it in
// time, or before ctx ends. It ends a server that has read a part of a message.
func (p *pipe) Write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	select {
	case p.writing <- struct{}{}:
		defer func() { <-p.writing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	raw, _ := ctx.Value(rawResultKey{}).(*rawResult)
	p.await(msg, raw)
	deadline := time.Now().Add(writeTime)
	limit, limited := ctx.Deadline()
	if limited = limited && limit.Before(deadline); limited {
		deadline = limit
	}
	if err := p.out.SetWriteDeadline(deadline); err != nil {
		return err
	}
	n, err := p.out.Write(append(data, '\n'))
	late := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case late && limited && n == 0: // nothing is broken
		<-ctx.Done() // it ends at any moment; the library takes an earlier error for the end of the connection
		return context.Cause(ctx)
	case late:
		err = errors.New("it does not read its standard input")
	}
	if err != nil {
		p.fault(err)
		return err
	}
	if _, ok := msg.(*jsonrpc.Response); ok {
		p.asked.Add(-1)
	}
	return nil
}

// Close ends reading and writing. It may be called again.
func (p *pipe) Close() error {
	_ = p.out.Close() // an error if closed before
	_ = p.in.Close()
	return nil
}
