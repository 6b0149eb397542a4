package mcp

import "time"

// SetListTime shortens the wait for lists.
func (p *Proxy) SetListTime(d time.Duration) { p.listTime = d }

// What tests need to see from inside.
var (
	Mask = mask
)

// Bounds that tests go beyond.
const (
	MaxMessage = maxMessage
	MaxValues  = maxValues
	MaxTail    = maxTail

	MaxListBytes = maxListBytes
)
