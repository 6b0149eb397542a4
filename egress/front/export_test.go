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

// Refuse lets no further work begin, as Close does first, and returns the rest of Close.
func (f *Front) Refuse() (rest func()) {
	f.running.Close()
	return f.stop
}

// AnswerQuery is answerQuery.
var AnswerQuery = answerQuery
