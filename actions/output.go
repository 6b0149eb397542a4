package actions

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"

	"github.com/actiond/actiond/actions/journal"
)

// Output is the kept output of an action, or of one stream of it, in an interval of offsets.
type Output struct {
	// Total is how many bytes were printed so far, also those that are not kept.
	Total int64
	// From and To are the interval. To is Total at first; later output is beyond it.
	From, To int64

	action *journal.Action
	all    bool // of all streams, by the offset in the action
	stream journal.Stream
}

// Output returns the kept output of the action, or of a stream if name is not ""; false for
// a name that no stream has.
func (r *Run) Output(name string) (o Output, ok bool) {
	stream := slices.Index(streamNames[:], name)
	if stream < 0 {
		return Output{}, false
	}
	info := r.action.Info()
	o = Output{action: r.action, all: name == "", stream: journal.Stream(stream), Total: info.Output} //nolint:gosec // there are three
	if !o.all {
		o.Total = info.Streams[stream]
	}
	o.To = o.Total
	return o, true
}

// each calls visit with the kept output, in order, until visit returns false. Data is valid during the call.
func (o Output) each(visit func(at int64, data []byte) bool) error {
	cursor := o.action.From(o.From)
	defer cursor.Close()
	buf := make([]byte, journal.ChunkSize)
	for {
		out, more, err := cursor.Next(buf)
		if errors.Is(err, io.EOF) || err == nil && more != nil {
			return nil
		}
		if err != nil {
			return err
		}
		at, data := out.Offset, out.Data
		if !o.all {
			at = out.StreamOffset
		}
		if !o.all && out.Stream != o.stream || at+int64(len(data)) <= o.From {
			continue
		}
		if at < o.From {
			at, data = o.From, data[o.From-at:]
		}
		if at >= o.To {
			return nil
		}
		if data = data[:min(int64(len(data)), o.To-at)]; !visit(at, data) {
			return nil
		}
	}
}

// Stretch returns the offset and the length of the first bytes that follow each other.
func (o Output) Stretch() (begin, length int64, err error) {
	err = o.each(func(at int64, data []byte) bool {
		if length == 0 {
			begin = at
		}
		if at > begin+length {
			return false
		}
		length += int64(len(data))
		return true
	})
	return begin, length, err
}

// Write writes at most limit bytes from From on, as far as they follow each other, also those that
// were printed meanwhile. It calls begin with the offset of the first byte before it writes that,
// and not where nothing is written.
func (o Output) Write(w io.Writer, limit int64, begin func(at int64)) {
	begun, end := false, o.From
	o.To = math.MaxInt64
	_ = o.each(func(at int64, data []byte) bool { // the bytes read before an error are sent
		switch {
		case limit == 0 || begun && at > end:
			return false
		case !begun:
			begin(at)
			begun = true
		}
		data = data[:min(int64(len(data)), limit)]
		end, limit = at+int64(len(data)), limit-int64(len(data))
		_, err := w.Write(data)
		return err == nil && limit > 0 // otherwise the reader is gone
	})
}

// LastLines returns the offset of the last n lines: of those behind the last bytes that are not kept.
func (o Output) LastLines(n int64) (int64, error) {
	begin, end, lines := o.From, o.From, int64(0)
	whole := true // the last line has an end
	err := o.each(func(at int64, data []byte) bool {
		if at != end {
			begin, lines = at, 0
		}
		lines += int64(bytes.Count(data, []byte("\n")))
		end, whole = at+int64(len(data)), data[len(data)-1] == '\n'
		return true
	})
	if !whole {
		lines++
	}
	skip := lines - n
	if skip <= 0 || err != nil {
		return begin, err
	}
	found := end
	o.From, o.To = begin, end
	err = o.each(func(at int64, data []byte) bool {
		for i, c := range data {
			if c != '\n' {
				continue
			}
			if skip--; skip == 0 {
				found = at + int64(i) + 1
				return false
			}
		}
		return true
	})
	return found, err
}
