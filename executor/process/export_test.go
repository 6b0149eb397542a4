package process

import "time"

// SetDrainTime says how long output is waited for that another process holds. It comes
// before the first program.
func (e *Engine) SetDrainTime(d time.Duration) { e.drain = d }

// Live returns how many programs count as running.
func (e *Engine) Live() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.live)
}
