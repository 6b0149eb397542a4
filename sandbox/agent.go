package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"time"

	"github.com/actiond/actiond/internal/channel"
)

// DialFunc opens a connection to the server of one sandbox. ctx bounds the
// opening.
type DialFunc func(ctx context.Context) (net.Conn, error)

// Open opens a connection on behalf of a request with the context ctx, which bounds
// the opening. The values of ctx belong to the request: an httptrace.ClientTrace
// among them would trace the requests by which a driver finds the server.
func (f DialFunc) Open(ctx context.Context) (net.Conn, error) {
	return f(WithoutValues(ctx))
}

// WithoutValues returns ctx without its values.
func WithoutValues(ctx context.Context) context.Context { return withoutValues{ctx} }

type withoutValues struct{ context.Context } //nolint:containedctx // it is a context

func (withoutValues) Value(any) any { return nil }

// UntilListening repeats do, which connects to a server, while its error says that the
// server does not listen yet, or is one of notYet. A connection that ends early says so too:
// a forwarded port takes connections before the server does. So do may reach the server more
// than once, as a claim may.
func UntilListening(ctx context.Context, do func() error, notYet ...error) error {
	notYet = append(notYet, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF)
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		err := do()
		timeout, ok := errors.AsType[net.Error](err)
		if err == nil || !(ok && timeout.Timeout()) && !slices.ContainsFunc(notYet, func(target error) bool { return errors.Is(err, target) }) {
			return err
		}
		// The kernel reports when a socket appears but not when a process listens
		// on it, so this looks: at first often, then every 20 ms.
		if err := channel.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// Agent speaks to the server of a sandbox. It must be safe for concurrent use.
type Agent interface {
	// Ready returns nil as soon as a real command ran in the sandbox's shell, or, for an
	// empty key, of a sandbox that is not claimed yet, as soon as the shell is ready.
	// It may try again until ctx ends.
	Ready(ctx context.Context, dial DialFunc, key string) error
	// Claim binds the sandbox to its owner. The same claim may be made again;
	// another one fails with ErrClaimed.
	Claim(ctx context.Context, dial DialFunc, claim Claim) error
	// Renew gives the server a deadline, ttl from now; 0 means none. ticket permits it, as it permits the claim.
	Renew(ctx context.Context, dial DialFunc, key, ticket string, ttl time.Duration) error
	// Status asks for the current state of the server.
	Status(ctx context.Context, dial DialFunc, key string) (Status, error)
	// Usage measures the sandbox. CPU is the processor time of its processes since their
	// start, in seconds.
	Usage(ctx context.Context, dial DialFunc, key string) (Stats, error)
	// Pack reads a file or directory as a tar archive, which the agent may have forged,
	// with the rights of the user of the commands. It fails with fs.ErrNotExist.
	Pack(ctx context.Context, dial DialFunc, key, path string) (io.ReadCloser, error)
	// Unpack unpacks a tar archive into a directory, for that user and with the same
	// rights. It fails with fs.ErrNotExist or ErrConflict.
	Unpack(ctx context.Context, dial DialFunc, key, dir string, archive io.Reader) error
}

// Claim binds a sandbox to its owner. Its limits replace those that the server was
// started with.
type Claim struct {
	Ticket     string // permits the claim; empty where the sandbox needs no ticket
	Key, Owner string
	Env        map[string]string
	TTL, Idle  time.Duration // 0: none
	Egress     string        // the address of the egress proxy, "unix:PATH" in the sandbox or IP:PORT; empty: none
	Token      string        // of the sandbox at a proxy by IP:PORT
	Names      bool          // with Egress: programs that know no proxy can connect to names
	// CA is the certificate, in PEM, of the authority by which the egress proxy opens TLS to hosts with
	// secrets; empty: none. Placeholders are variables for programs that want a secret.
	CA           string
	Placeholders map[string]string
}

// Status is the state that a server reports.
type Status struct {
	Busy     bool      // an action is running
	Claimed  bool      // it has an owner
	Since    time.Time // of the last action's end, or of the start
	Deadline time.Time // zero: none
	UserID   *int      // of the commands; nil: not known
	// TrustProblem is why programs that use the image's own certificates do not trust hosts with
	// secrets; empty: they do, or there is no network policy.
	TrustProblem string
	// NamesProblem is why programs that know no proxy cannot connect to names, although they
	// should; otherwise "".
	NamesProblem string
	// DirProblem is why commands begin in another directory than the one that was asked for;
	// otherwise "".
	DirProblem string
}
