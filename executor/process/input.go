package process

import (
	"bytes"
	"os"
	"time"
)

// endOfFile is what is typed at the end of input (termios(3), VEOF).
const endOfFile = "\x04"

// input is the standard input of a program: a pipe, or its terminal.
type input struct {
	file     *os.File
	terminal bool
}

// feed writes all that the program is to read, and its end. It returns once the program
// has taken it, has closed its end, or has ended.
func (i *input) feed(data []byte) {
	if !i.terminal {
		_, _ = i.file.Write(data) // it need not be read
		_ = i.file.Close()
		return
	}
	end := endOfFile
	if len(data) > 0 && !bytes.HasSuffix(data, []byte("\n")) {
		end += endOfFile // the first one ends the line
	}
	_, _ = i.file.Write(append(bytes.Clone(data), end...))
}

// close ends a feed that is under way.
func (i *input) close() {
	if i.terminal {
		_ = i.file.SetWriteDeadline(time.Now())
		return
	}
	_ = i.file.Close()
}
