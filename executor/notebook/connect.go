package notebook

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/actiond/actiond/internal/files"
)

// The ports of a kernel's connection file; with Unix sockets they number paths.
const (
	portShell = iota + 1
	portIOPub
	portStdin
	portControl
	portHeartbeat
)

// writeConnection makes the directory and the connection file, which holds the
// key. It runs with the user's rights.
func (k *kernel) writeConnection() (err error) {
	for _, parent := range []string{os.TempDir(), "/tmp"} {
		if k.dir, err = os.MkdirTemp(parent, "actiond-kernel-"); err != nil {
			return err
		}
		if len(k.socket(portHeartbeat)) < len(unix.RawSockaddrUnix{}.Path) {
			break
		}
		_ = os.Remove(k.dir) // its name is too long for sockets
	}
	data, err := json.Marshal(map[string]any{
		"transport": "ipc", "ip": filepath.Join(k.dir, "k"), "key": string(k.key), "signature_scheme": "hmac-sha256",
		"shell_port": portShell, "iopub_port": portIOPub, "stdin_port": portStdin, "control_port": portControl,
		"hb_port": portHeartbeat,
	})
	if err != nil {
		return err
	}
	return files.WriteNew(k.connectionFile(), data, 0o600)
}

func (k *kernel) connectionFile() string { return filepath.Join(k.dir, "connection.json") }

func (k *kernel) socket(port int) string {
	return fmt.Sprintf("%s-%d", filepath.Join(k.dir, "k"), port)
}

// lateReader reads the bytes that are there also after the deadline: the reason that the
// kernel gave before it ended.
type lateReader struct{ link *os.File }

func (r lateReader) Read(p []byte) (int, error) {
	n, err := r.link.Read(p)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return files.ReadNow(r.link, p)
	}
	return n, err
}

// connect runs until the kernel has answered. The kernel's end ends it.
func (k *kernel) connect(program string) error {
	line, err := bufio.NewReader(io.LimitReader(lateReader{k.link}, 4<<10)).ReadString('\n')
	if err != nil {
		return fmt.Errorf("starting a kernel in %s: %w", program, errEnded)
	}
	word, detail, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	switch word {
	case "ready":
	case "broken":
		return fmt.Errorf("starting a kernel in %s: %s", program, detail)
	default:
		return &absentError{program, detail}
	}
	k.python = detail
	return k.attach()
}

// attach connects to a kernel that listens, and returns once its output arrives.
func (k *kernel) attach() error {
	for _, to := range []struct {
		peer **peer
		kind string
		port int
	}{
		{&k.shell, "DEALER", portShell},
		{&k.iopub, "SUB", portIOPub},
		{&k.control, "DEALER", portControl},
		{&k.heartbeat, "DEALER", portHeartbeat},
	} {
		p, err := k.dial(to.kind, to.port)
		if err != nil {
			return fmt.Errorf("connecting to the kernel: %w", err)
		}
		k.mu.Lock()
		*to.peer = p
		k.mu.Unlock()
		if k.over() { // else wait will see the peer, and end what is read from it
			return errEnded
		}
	}
	if err := k.iopub.send([]byte{1}); err != nil { // subscribes to everything
		return err
	}
	k.readers.Go(func() { k.read(k.shell) })
	k.readers.Go(func() { k.read(k.iopub) })
	return k.awaitOutput()
}

// dial connects with the user's rights and looks who is there.
func (k *kernel) dial(kind string, port int) (*peer, error) {
	var conn *net.UnixConn
	err := k.cfg.User.Do(func() (err error) {
		conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: k.socket(port)})
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := k.checkPeer(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return newPeer(conn, kind)
}

// checkPeer makes sure that the user's own process listens.
func (k *kernel) checkPeer(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var inner error
	err = raw.Control(func(fd uintptr) {
		peer, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err = errors.Join(err, inner); err != nil {
		return err
	}
	if want := k.cfg.User.EffectiveUID(); int(peer.Uid) != want {
		return fmt.Errorf("%w: user %d listens there, and not %d", errProtocol, peer.Uid, want)
	}
	return nil
}

// awaitOutput runs empty cells until the idle status of one arrives: a
// publisher drops messages before it knows of a subscription.
func (k *kernel) awaitOutput() error {
	for {
		c, err := k.begin("", true, &output{})
		if err != nil {
			return err
		}
		select {
		case <-c.done:
			return nil
		case <-k.dead:
			return errEnded
		case <-time.After(time.Second):
		}
	}
}

// peers lists the connections that were made.
func (k *kernel) peers() []*peer {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.DeleteFunc([]*peer{k.shell, k.iopub, k.control, k.heartbeat}, func(p *peer) bool { return p == nil })
}
