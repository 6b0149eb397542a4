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
)

const (
	// maxMessage bounds a message of a server: room for a screenshot or two.
	maxMessage = 16 << 20
	// maxValues bounds the values in one: a decoded value takes up to 50 times
	// the bytes that it was written with. The longest honest message lists some
	// hundred tools of some hundred values each.
	maxValues = 200_000
	// maxJunk bounds what a server prints between two messages that is none.
	maxJunk = 1 << 20
	// maxAsked bounds the requests of a server that it has no answer to yet.
	maxAsked = 64
	// writeTime bounds how long a server leaves its standard input unread.
	writeTime = 10 * time.Second
)

var errOutputEnded = errors.New("it closed its standard output")

// pipe is the connection to a server over its standard input and output, where
// each line is a message. It is what stands between a hostile server and the
// library, which would queue whatever comes.
type pipe struct {
	in    *os.File
	lines *bufio.Reader
	// hide takes the secrets out of what the server wrote.
	hide func(string) string
	// fault is told why no more messages are taken from the server. It must
	// end it.
	fault func(error)
	junk  int
	asked atomic.Int32

	writing chan struct{} // holds an element while a message is written
	out     *os.File

	mu      sync.Mutex
	awaited map[jsonrpc.ID]*rawResult
}

// rawResult takes the result of a call as it came. The library makes floats of
// its numbers.
type rawResult struct{ text json.RawMessage }

// rawResultKey finds a *rawResult in the context of a call.
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

// SessionID is a matter of other transports.
func (p *pipe) SessionID() string { return "" }

// Read returns the next answer or request of the server. What is none is
// dropped, and so are notifications, which nobody here waits for. The context
// does not end it: Close does.
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

// line reads a line of at most maxMessage bytes, and a part of a longer one.
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

// message understands a line; nil where it is to be dropped.
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
	case err != nil && bytes.Contains(line, []byte(`"jsonrpc"`)): // somebody waits for it
		return nil, fmt.Errorf("it sent a message that cannot be understood: %s", p.hide(err.Error()))
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
		return nil, fmt.Errorf("it has more than %d requests open", maxAsked)
	}
	return msg, nil
}

// drop counts what is no message.
func (p *pipe) drop(line []byte) error {
	if p.junk += len(line) + 1; p.junk <= maxJunk {
		return nil
	}
	return fmt.Errorf("it prints to standard output what is no message of the protocol, such as %s", excerpt(p.hide(string(line))))
}

func excerpt(line string) string {
	const most = 60
	if len(line) > most {
		return strconv.QuoteToASCII(line[:most]) + "…"
	}
	return strconv.QuoteToASCII(line)
}

// values counts the values in JSON but for a few, by what stands between them. It
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

// keep gives a result to whoever awaits it as it is.
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

// await has keep keep the result of a request in raw, if it has one.
func (p *pipe) await(msg jsonrpc.Message, raw *rawResult) {
	if request, ok := msg.(*jsonrpc.Request); ok && request.IsCall() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.awaited[request.ID] = raw
	}
}

// forget ends that.
func (p *pipe) forget(raw *rawResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.awaited, func(_ jsonrpc.ID, r *rawResult) bool { return r == raw })
}

// Write sends a message. It fails where the server does not take it in time, or
// within that of ctx; a server that took a part of one is ended.
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
		<-ctx.Done() // at any moment; the library takes an error before it for the connection's end
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
	_ = p.out.Close() // closed twice, it says so
	_ = p.in.Close()
	return nil
}
