package notebook

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// cell is a request that runs.
type cell struct {
	id            string
	out           *output
	replied, idle bool
	interrupted   bool          // its traceback is our doing
	exits         bool          // it called exit
	done          chan struct{} // closed once the reply and the idle status came
}

func (c *cell) over() bool { return c.replied && c.idle }

// take goes to the cell's directory and runs the cell, all within its Timeout.
func (k *kernel) take(cell Cell) Result {
	begun := time.Now()
	if cell.Dir != k.cwd || k.homeless() {
		limit := hiddenTime
		if cell.Timeout >= 0 {
			limit = min(limit, cell.Timeout)
		}
		// In bytes: a name need not be text. Where it fails the kernel stays where it is.
		k.hidden(fmt.Sprintf("__import__('os').chdir(bytes.fromhex('%s'))", hex.EncodeToString([]byte(cell.Dir))), limit)
		k.cwd = cell.Dir
	}
	result := Result{Python: k.python, TimedOut: true}
	if cell.Timeout >= 0 {
		cell.Timeout = max(0, cell.Timeout-time.Since(begun))
	}
	if cell.Timeout != 0 { // else there is no time left to begin
		result = k.run(cell)
	}
	if result.Ended == "" && k.over() {
		result.Ended = k.end()
	}
	result.InitFailed, k.initFailed = k.initFailed, ""
	return result
}

// run runs a cell until it is over, one way or another.
func (k *kernel) run(cell Cell) Result {
	defer k.forget()
	out := &output{follower: cell.follower}
	c, err := k.begin(cell.Code, false, out)
	if err != nil {
		k.tree.Kill() // it may have read half a message
	}
	var limit <-chan time.Time
	if cell.Timeout >= 0 {
		limit = time.After(cell.Timeout)
	}
	result := Result{Python: k.python}
	killed := false
	select {
	case <-c.done:
	case <-k.gone:
	case <-limit:
		result.TimedOut, killed = true, k.finish(c)
	case <-cell.Cancelled:
		result.Interrupted, killed = true, k.finish(c)
	}
	select {
	case <-c.done:
		if c.exits {
			// The kernel would take a moment to exit, and begin another cell meanwhile.
			k.stop(true)
			result.Ended = "was ended by exit"
		}
	default:
		if result.Ended = k.end(); killed {
			result.Ended = "ignored the interrupt and was killed"
		}
	}
	result.Text, result.Images, result.Raised = out.text(), out.images, out.raised
	return result
}

// finish interrupts a cell, and kills the kernel if that does not end it. When
// it returns the cell is done or the kernel gone.
func (k *kernel) finish(c *cell) (killed bool) {
	again := time.NewTicker(interruptTime)
	defer again.Stop()
	grace := time.After(graceTime)
	for {
		k.interrupt(c)
		select {
		case <-c.done:
			return false
		case <-k.gone:
			return false
		case <-again.C:
		case <-grace:
			k.tree.Kill()
			<-k.gone
			return true
		}
	}
}

// interrupt interrupts a cell, as C-c does.
func (k *kernel) interrupt(c *cell) {
	k.mu.Lock()
	c.interrupted = true
	k.mu.Unlock()
	k.signal(unix.SIGINT)
	k.signal(unix.SIGCONT) // it may have stopped itself
}

// hiddenTime bounds a cell of the server's own.
const hiddenTime = 30 * time.Second

// hidden runs a cell of the server's own. It returns the output of the cell, and whether
// it was done within the limit; otherwise it was interrupted, or the kernel ended.
func (k *kernel) hidden(code string, limit time.Duration) (out *output, done bool) {
	defer k.forget()
	out = &output{}
	c, err := k.begin(code, true, out)
	if err != nil {
		return out, false
	}
	select {
	case <-c.done:
		return out, true
	case <-k.gone:
	case <-time.After(limit):
		k.finish(c)
	}
	return out, false
}

// begin sends a cell. Only one runs at a time.
func (k *kernel) begin(code string, silent bool, out *output) (*cell, error) {
	id, frames, err := k.request("execute_request",
		executeRequest{Code: code, Silent: silent, UserExpressions: map[string]string{}})
	if err != nil {
		return nil, err
	}
	c := &cell{id: id, out: out, done: make(chan struct{})}
	k.mu.Lock()
	k.current = c
	k.mu.Unlock()
	return c, k.shell.send(frames...)
}

// forget drops the output of the current cell from here on.
func (k *kernel) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.current = nil
}

// read takes the messages of one socket until it ends.
func (k *kernel) read(p *peer) {
	for {
		m, err := k.receive(p)
		switch {
		case errors.Is(err, errForeign):
			continue
		case errors.Is(err, errProtocol):
			k.tree.Kill() // whatever that is, it is no kernel
			return
		case err != nil:
			k.bury()
			return
		}
		k.deliver(m)
	}
}

func (k *kernel) deliver(m message) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.current
	if c == nil || m.Parent != c.id || c.over() {
		return
	}
	switch {
	case m.Type == "execute_reply":
		exits, failed := m.reply()
		c.replied, c.exits, c.out.raised = true, exits, c.out.raised || failed
	case c.interrupted && m.tellsInterrupt():
	case m.addTo(c.out):
		c.idle = true
	}
	if c.over() {
		close(c.done)
	}
}
