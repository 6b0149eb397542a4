package actions

import (
	"context"

	"github.com/actiond/actiond/actions/journal"
	"github.com/actiond/actiond/api"
)

// streamNames are the names of streams on the wire.
var streamNames = [...]string{journal.Stdout: api.StreamStdout, journal.Stderr: api.StreamStderr}

// Follow calls send with the output events behind the event after, as they come, until the
// end of the action, and returns the number of the last event. The reader that started the
// program passes its Flow, any other nil. The error is that of send or the cause of the end of ctx.
func (r *Run) Follow(ctx context.Context, after uint64, flow *Flow, send func(api.Output) error) (last uint64, err error) {
	cursor := r.action.Follow(max(after, 1) - 1) // the one before says where the next begins
	defer cursor.Close()
	buf := make([]byte, journal.ChunkSize)
	last = after
	var end [len(streamNames)]int64  // where the next stretch of each stream should begin
	var known [len(streamNames)]bool // whether end is known: not of a stream before the first event behind after
	for {
		o, more, err := cursor.Next(buf)
		switch {
		case err != nil: // io.EOF, or the action is forgotten
			return max(last, r.action.Info().Stretches), nil
		case more != nil:
			select {
			case <-more:
			case <-ctx.Done():
				return last, context.Cause(ctx)
			}
			continue
		}
		missed := int64(0)
		if known[o.Stream] || after == 0 {
			missed = o.StreamOffset - end[o.Stream]
		}
		known[o.Stream], end[o.Stream] = true, o.StreamOffset+int64(len(o.Data))
		if o.Seq <= after {
			continue
		}
		last = o.Seq
		if err := send(api.Output{Seq: o.Seq, PID: o.PID, Stream: streamNames[o.Stream], Offset: o.StreamOffset, Missed: missed, Data: o.Data}); err != nil {
			return last, err
		}
		flow.take(missed + int64(len(o.Data)))
	}
}
