package notebook

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// The framing of ZMTP 3.0 (rfc.zeromq.org/spec/23).
const (
	flagMore    = 1 << 0
	flagLong    = 1 << 1
	flagCommand = 1 << 2

	greetingSize = 64
	maxCommand   = 4 << 10 // the commands of a handshake are some 60 bytes long
)

// sendTime bounds how long a kernel may take to read a request: its
// own thread does that, whatever the cell is doing.
const sendTime = 10 * time.Second

var errProtocol = errors.New("the kernel does not keep to its protocol")

// peer is a connection to one socket of a kernel.
type peer struct {
	conn net.Conn
	in   *bufio.Reader
}

// newPeer shakes hands as a socket of that type. It closes conn where it fails.
func newPeer(conn net.Conn, socketType string) (*peer, error) {
	p := &peer{conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
	_ = conn.SetDeadline(time.Now().Add(sendTime))
	if err := p.shakeHands(socketType); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("shaking hands as %s: %w", socketType, err)
	}
	return p, conn.SetDeadline(time.Time{})
}

func (p *peer) shakeHands(socketType string) error {
	greeting := make([]byte, greetingSize)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	if _, err := p.conn.Write(greeting); err != nil {
		return err
	}
	theirs := make([]byte, greetingSize)
	if _, err := io.ReadFull(p.in, theirs); err != nil {
		return err
	}
	if theirs[0] != 0xff || theirs[9] != 0x7f || theirs[10] < 3 || string(theirs[12:17]) != "NULL\x00" {
		return fmt.Errorf("%w: greeting % x", errProtocol, theirs[:18])
	}
	ready := append([]byte("\x05READY\x0bSocket-Type"), 0, 0, 0, byte(len(socketType))) //nolint:gosec // a word
	ready = append(ready, socketType...)
	ready = append(ready, "\x08Identity\x00\x00\x00\x00"...)
	if _, err := p.conn.Write(append([]byte{flagCommand, byte(len(ready))}, ready...)); err != nil { //nolint:gosec // some forty bytes
		return err
	}
	flags, size, err := p.head()
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 || size > maxCommand {
		return fmt.Errorf("%w: a frame of %d bytes before READY", errProtocol, size)
	}
	command := make([]byte, size)
	if _, err := io.ReadFull(p.in, command); err != nil {
		return err
	}
	if size < 6 || string(command[:6]) != "\x05READY" {
		return fmt.Errorf("%w: %q before READY", errProtocol, command)
	}
	return nil
}

// head reads the head of a frame.
func (p *peer) head() (flags byte, size uint64, err error) {
	if flags, err = p.in.ReadByte(); err != nil {
		return 0, 0, err
	}
	if flags&flagLong == 0 {
		short, err := p.in.ReadByte()
		return flags, uint64(short), err
	}
	var long [8]byte
	if _, err := io.ReadFull(p.in, long[:]); err != nil {
		return 0, 0, err
	}
	return flags, binary.BigEndian.Uint64(long[:]), nil
}

// frames calls each with the frames of the next message, first to last. The
// rest that each leaves is skipped; its error ends the reading.
func (p *peer) frames(each func(i int, frame *io.LimitedReader) error) error {
	for i := 0; ; {
		flags, size, err := p.head()
		if err != nil {
			return err
		}
		if size > 1<<62 {
			return fmt.Errorf("%w: a frame of %d bytes", errProtocol, size)
		}
		frame := &io.LimitedReader{R: p.in, N: int64(size)}
		if flags&flagCommand == 0 {
			if err := each(i, frame); err != nil {
				return err
			}
			i++
		}
		if _, err := io.Copy(io.Discard, frame); err != nil {
			return err
		}
		if frame.N > 0 {
			return io.ErrUnexpectedEOF
		}
		if flags&(flagCommand|flagMore) == 0 {
			return nil
		}
	}
}

// send sends a message.
func (p *peer) send(frames ...[]byte) error {
	var out []byte
	for i, f := range frames {
		flags := byte(0)
		if i+1 < len(frames) {
			flags = flagMore
		}
		if len(f) < 256 {
			out = append(out, flags, byte(len(f))) //nolint:gosec // it fits
		} else {
			out = binary.BigEndian.AppendUint64(append(out, flags|flagLong), uint64(len(f)))
		}
		out = append(out, f...)
	}
	if err := p.conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	_, err := p.conn.Write(out)
	return err
}
