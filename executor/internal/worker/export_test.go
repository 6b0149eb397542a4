package worker

import "time"

// TakeTurns takes all turns, as children that hang do, and sets how long others wait for one.
func (p *Pool) TakeTurns(wait time.Duration) {
	p.wait = wait
	for range cap(p.turns) {
		p.turns <- struct{}{}
	}
}
