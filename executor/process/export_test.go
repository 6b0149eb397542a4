package process

import "time"

// SetDrainTime says how long output is waited for that another process holds. It comes
// before the first program.
func (e *Engine) SetDrainTime(d time.Duration) { e.drain = d }

// SetHands says how many bytes of kept output are handed over.
func (e *Engine) SetHands(most int) { e.hands = most }

// Live returns how many programs count as running.
func (e *Engine) Live() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.live)
}

// Next returns where the input goes on; false where it is frozen.
func (p *Process) Next() (int64, bool) {
	if !p.input.mu.TryLock() {
		return 0, false
	}
	defer p.input.mu.Unlock()
	return p.input.taken, true
}
