package mcp

import "time"

// SetListTime shortens the wait for lists.
func (p *Proxy) SetListTime(d time.Duration) { p.listTime = d }

// Internals that tests need.
var (
	Mask         = mask
	RepairResult = repairResult
)

// Bounds that tests go beyond.
const (
	MaxMessage = maxMessage
	MaxValues  = maxValues
	MaxTail    = maxTail

	MaxListBytes = maxListBytes
)
