package front

// StartWithin is Start with another limit for headers.
var StartWithin = start

// Denials are denials.
type Denials struct{ denials }

// NewDenials returns denials without any.
func NewDenials() *Denials { return &Denials{} }

// Add is add.
func (d *Denials) Add(one Denial) { d.add(one) }

// All is all.
func (d *Denials) All() []Denial { return d.all() }

// Refuse sets whether work may begin, as Close does first.
func (f *Front) Refuse(refuse bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = refuse
}
