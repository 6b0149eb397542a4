package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/random"
)

func (p *program) mcp() *cobra.Command {
	var dialect, session string
	c := &cobra.Command{
		Use:   "mcp [flags] SANDBOX",
		Short: "Offer the tools of a sandbox to an MCP client",
		Long: `Mcp is a server of the Model Context Protocol for the program that starts it: it
carries messages between that program and the sandbox, one a line. It ends with
its standard input, once everything is answered.`,
		Example: `  claude mcp add build -- runtimectl mcp build
  runtimectl mcp --dialect gemini --session tests build`,
		Args:              command.ArgRange(1, 1),
		ValidArgsFunction: p.CompleteSandboxes(1, platform.Running...),
	}
	addDialect(c, &dialect)
	c.Flags().StringVar(&session, "session", "",
		"run commands in the persistent shell `NAME` (default: the one of calls that name none)")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := api.CheckSession(session); err != nil {
			return command.Usage(cmd, err)
		}
		return p.WithClient(cmd.Context(), args[0], func(c *client.Client) error {
			b := &mcpBridge{client: c, dialect: dialect, session: session, out: p.Stdout, calls: map[string]*mcpCall{}}
			return b.carry(cmd.Context(), p.Stdin)
		})
	}
	return c
}

// maxMCPLine bounds a message of the MCP client: a call may carry a whole file.
const maxMCPLine = 64 << 20

// mcpBridge carries messages. It owns a goroutine for each that is not answered.
type mcpBridge struct {
	client           *client.Client
	dialect, session string

	mu    sync.Mutex
	out   io.Writer
	calls map[string]*mcpCall // by the id of the request, as it was written
	err   error               // of writing
}

// mcpCall is a request that is not answered.
type mcpCall struct {
	leave     context.CancelFunc // closes its connection, which in new revisions ends its action
	id        string             // of an action that a closed connection does not end; "" where the client knows that, or there is none
	cancelled bool               // its answer is not passed on; the lock of the bridge
	answered  chan struct{}
}

// carry reads messages until the end of in, and returns when all are answered,
// or ctx ended.
func (b *mcpBridge) carry(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines, failed := make(chan []byte), make(chan error, 1)
	// Reading cannot be ended; the goroutine goes with the program.
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, maxMCPLine)
		for scanner.Scan() {
			select {
			case lines <- bytes.Clone(scanner.Bytes()):
			case <-ctx.Done():
				return
			}
		}
		failed <- scanner.Err()
	}()
	var carrying sync.WaitGroup
	defer carrying.Wait()
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				carrying.Wait()
				return errors.Join(<-failed, b.err)
			}
			if line = bytes.TrimSpace(line); len(line) > 0 {
				b.take(ctx, &carrying, line)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take carries one message. A cancellation ends the request that it names, which
// has a connection of its own, and its action, unless the client named that.
func (b *mcpBridge) take(ctx context.Context, carrying *sync.WaitGroup, line []byte) {
	var message struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			RequestID json.RawMessage `json:"requestId"`
			Meta      struct {
				Version  string          `json:"io.modelcontextprotocol/protocolVersion"`
				Identity json.RawMessage `json:"actiond/id"`
			} `json:"_meta"`
		} `json:"params"`
	}
	_ = json.Unmarshal(line, &message) // the sandbox reports the mistake in it
	b.mu.Lock()
	defer b.mu.Unlock()
	if line[0] != '{' || !json.Valid(line) {
		b.say(refusal(json.RawMessage("null"), parseError, errNoMessage))
		return
	}
	if message.Method == "notifications/cancelled" {
		if call := b.calls[string(message.Params.RequestID)]; call != nil {
			call.cancelled = true
			carrying.Go(func() { b.end(ctx, call) })
		}
		return
	}
	ctx, leave := context.WithCancel(ctx)
	call := &mcpCall{leave: leave, answered: make(chan struct{})}
	if message.Method == "tools/call" && message.Params.Meta.Version == "" && message.Params.Meta.Identity == nil {
		call.id = random.UUID7()
	}
	id := string(message.ID)
	if id != "" {
		b.calls[id] = call
	}
	carrying.Go(func() {
		defer leave()
		defer close(call.answered)
		pass := func(answer json.RawMessage) {
			b.mu.Lock()
			defer b.mu.Unlock()
			switch {
			case call.cancelled || ctx.Err() != nil || id == "": // no answer is expected
				return
			case !json.Valid(answer):
				answer = refusal(message.ID, internalError, errors.New("the sandbox's answer is not JSON"))
			}
			b.say(answer)
		}
		if err := b.client.MCP(ctx, b.dialect, b.session, call.id, line, pass); err != nil {
			pass(refusal(message.ID, internalError, err))
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.calls, id)
	})
}

// end ends a request, and its action where the sandbox does not by itself. The sandbox may not
// have read the request yet.
func (b *mcpBridge) end(ctx context.Context, call *mcpCall) {
	defer call.leave()
	for call.id != "" {
		_, err := b.client.Cancel(ctx, call.id, 0)
		failed, ok := errors.AsType[*client.StatusError](err)
		if !ok || failed.Status != http.StatusNotFound || channel.ClosedWithin(call.answered, cancelPause) {
			return
		}
	}
}

// say writes a message to the client, on one line. The caller holds mu.
func (b *mcpBridge) say(message []byte) {
	var line bytes.Buffer
	_ = json.Compact(&line, message) // it is valid
	line.WriteByte('\n')
	if _, err := b.out.Write(output.EscapeJSON(line.Bytes())); err != nil && b.err == nil {
		b.err = fmt.Errorf("answering the MCP client: %w", err)
	}
}

// Codes of JSON-RPC.
const (
	parseError    = -32700
	internalError = -32603
)

var errNoMessage = errors.New("a message must be a JSON object on a line of its own")

// refusal is the answer to a message that the sandbox did not take.
func refusal(id json.RawMessage, code int, err error) []byte {
	words, _ := api.Encode(err.Error()) // a text can be encoded
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, id, code, words)
}
