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
	junk  int
	asked atomic.Int32

	writing chan struct{} // holds an element while a message is written
	out     *os.File

	mu      sync.Mutex
	awaited map[jsonrpc.ID]*rawResult
}

// rawResult receives the result of a call unchanged. The library turns its
// numbers into floats.
type rawResult struct{ text json.RawMessage }

// rawResultKey is the key of a *rawResult in the context of a call.
type rawResultKey struct{}

var _ sdk.Connection = (*pipe)(nil)

func newPipe(in, out *os.File, hide func(string) string, fault func(error)) *pipe {
	return &pipe{
		in: in, lines: bufio.NewReaderSize(in, 64<<10), out: out, hide: hide, fault: fault,
		writing: make(chan struct{}, 1), awaited: map[jsonrpc.ID]*rawResult{},
	}
}

// Connect makes the pipe its own transport.
func (p *pipe) Connect(context.Context) (sdk.Connection, error) { return p, nil }

// SessionID is for other transports.
func (p *pipe) SessionID() string { return "" }

// Read returns the next answer or request of the server. It drops
// notifications, which no client waits for, and lines that are not messages. It
// ignores the context: Close ends it.
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
func (p *pipe) line() ([]byte, error) {
	var line []byte
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
	line = bytes.TrimSpace(line)
	switch {
	case len(line) == 0:
		return nil, p.drop(line)
	case len(line) > maxMessage:
		return nil, fmt.Errorf("it printed more than %d MiB without the end of a line", maxMessage>>20)
	case line[0] != '{':
		return nil, p.drop(line)
	case values(line) > maxValues:
		return nil, fmt.Errorf("it sent a message of more than %d values", maxValues)
	}
	msg, err := jsonrpc.DecodeMessage(line)
	switch {
	case err != nil && bytes.Contains(line, []byte(`"jsonrpc"`)): // a client waits for it
		return nil, fmt.Errorf("it sent a message that cannot be decoded: %s", p.hide(err.Error()))
	case err != nil:
		return nil, p.drop(line)
	}
	p.junk = 0
	request, ok := msg.(*jsonrpc.Request)
	switch {
	case !ok:
		p.keep(msg)
		return msg, nil
	case !request.IsCall():
		return nil, nil //nolint:nilnil // a notification
	case p.asked.Add(1) > maxAsked:
		return nil, fmt.Errorf("it has more than %d unanswered requests", maxAsked)
	}
	return msg, nil
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

// keep stores the result of a request that await registered.
func (p *pipe) keep(msg jsonrpc.Message) {
	response, ok := msg.(*jsonrpc.Response)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if raw := p.awaited[response.ID]; raw != nil {
		raw.text = response.Result
		delete(p.awaited, response.ID)
	}
}

// await registers raw to receive the result of a request.
func (p *pipe) await(msg jsonrpc.Message, raw *rawResult) {
	if request, ok := msg.(*jsonrpc.Request); ok && request.IsCall() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.awaited[request.ID] = raw
	}
}

// forget undoes await.
func (p *pipe) forget(raw *rawResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.awaited, func(_ jsonrpc.ID, r *rawResult) bool { return r == raw })
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
	if raw, ok := ctx.Value(rawResultKey{}).(*rawResult); ok {
		p.await(msg, raw)
	}
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
