package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
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
	// fault is told why no more messages are taken from the server. It must
	// end it.
	fault func(error)
	junk  int
	asked atomic.Int32

	writing sync.Mutex
	out     *os.File
}

var _ sdk.Connection = (*pipe)(nil)

func newPipe(in, out *os.File, fault func(error)) *pipe {
	return &pipe{in: in, lines: bufio.NewReaderSize(in, 64<<10), out: out, fault: fault}
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
		return nil, nil //nolint:nilnil // an empty line is nothing
	case len(line) > maxMessage:
		return nil, fmt.Errorf("it printed more than %d MiB without the end of a line", maxMessage>>20)
	case line[0] != '{':
		return nil, p.drop(line)
	case tooMany(line):
		return nil, fmt.Errorf("it sent a message of more than %d values", maxValues)
	}
	msg, err := jsonrpc.DecodeMessage(line)
	switch {
	case err != nil && bytes.Contains(line, []byte(`"jsonrpc"`)): // somebody waits for it
		return nil, fmt.Errorf("it sent a message that cannot be understood: %w", err)
	case err != nil:
		return nil, p.drop(line)
	}
	p.junk = 0
	request, ok := msg.(*jsonrpc.Request)
	switch {
	case !ok:
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
	return fmt.Errorf("it prints to standard output what is no message of the protocol, such as %s", excerpt(line))
}

func excerpt(line []byte) string {
	const most = 60
	if len(line) > most {
		return strconv.QuoteToASCII(string(line[:most])) + "…"
	}
	return strconv.QuoteToASCII(string(line))
}

// tooMany tells whether JSON has more than maxValues values, by what stands
// between them. It need not be JSON.
func tooMany(text []byte) bool {
	n, quoted := 0, false
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
	return n > maxValues
}

// Write sends a message. It fails where the server does not take it in time.
func (p *pipe) Write(_ context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	if err := p.out.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return err
	}
	if _, err := p.out.Write(append(data, '\n')); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("it did not read its standard input for %v", writeTime)
		}
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
