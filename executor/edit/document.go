package edit

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/actiond/actiond/executor/internal/document"
	"github.com/actiond/actiond/executor/internal/worker"
	"github.com/actiond/actiond/internal/files"
)

// documentClipped is the note below the first part of a document.
const documentClipped = "<response clipped><NOTE>Due to the max output limit, only part of this file has been shown to you. " +
	"Please use Python libraries to view the entire file or search for specific content within the file.</NOTE>"

// converts reports whether a view shows a file as Markdown.
func (c Command) converts() bool {
	kind := document.Kind(c.Path)
	if c.Markdown {
		return kind != ""
	}
	return (c.Dialect == OpenHands || c.Dialect == Anthropic || c.Dialect == Actiond) && slices.Contains(viewOnly, kind)
}

// viewDocument shows a document as Markdown, or a range of its lines. offsets words the notes for [Command.offsets].
func (e *Editor) viewDocument(p place, lines []int, offsets bool) (Result, error) {
	r := document.Request{Kind: document.Kind(p.shown), First: 1, Last: -1, Most: maxShown}
	if len(lines) > 0 {
		if len(lines) != 2 {
			return Result{}, invalid(CodeInvalidRange, "view_range", list(lines), "It should be a list of two integers.")
		}
		r.First, r.Last = lines[0], lines[1]
		if r.First < 1 || r.Last != -1 && r.Last < r.First {
			return Result{}, invalid(CodeInvalidRange, "view_range", list(lines), "Its first element should be at least 1, "+
				"and its second one -1 or at least the first.")
		}
	}
	page, sum, err := e.convert(p, r)
	if err != nil {
		return Result{}, err
	}
	if page.Lines > 0 && r.First > page.Lines && offsets {
		text := fmt.Sprintf("[The Markdown of the file has %d lines: line %d is behind its end.]", page.Lines, r.First)
		return Result{Text: text, SHA256: sum, Existed: true}, nil
	}
	if page.Lines > 0 && r.First > page.Lines {
		return Result{}, invalid(CodeInvalidRange, "view_range", list(lines), fmt.Sprintf(
			"Its first element `%d` should be within the range of lines of the Markdown: [1, %d].", r.First, page.Lines))
	}
	text := page.Text
	if page.Next > 0 && len(lines) == 0 {
		text += documentClipped
	}
	text += "\n"
	switch {
	case page.Next > 0 && offsets:
		text += fmt.Sprintf("[These are the lines %d to %d of the Markdown. Use offset %d to go on.]", r.First, page.Next-1, page.Next)
	case page.Next > 0 && (r.Last == -1 || page.Next <= r.Last):
		text += fmt.Sprintf("NOTE: These are the lines %d to %d of the Markdown. View [%d, -1] to go on.\n", r.First,
			page.Next-1, page.Next)
	}
	return Result{
		Text:   fmt.Sprintf("Here's the content of the file %s displayed in Markdown format:\n%s", p.shown, text),
		SHA256: sum, Existed: true,
	}, nil
}

// convert has a worker convert a document and returns the hash of its bytes.
func (e *Editor) convert(p place, r document.Request) (page document.Page, sum string, err error) {
	in, size, err := e.openRegular(p)
	if err != nil {
		return page, "", err
	}
	defer in.Close()
	if size > document.MaxSize {
		return page, "", tooLarge(p, document.MaxSize)
	}
	page, err = e.workers.Convert(in, size, r)
	if err != nil {
		return page, "", unconverted(p, err)
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(in, 0, size)); err != nil {
		return page, "", unreadable(p.shown, err)
	}
	return page, hex.EncodeToString(h.Sum(nil)), nil
}

// openRegular opens a regular file of any size.
func (e *Editor) openRegular(p place) (in *os.File, size int64, err error) {
	if !p.info.Mode().IsRegular() {
		return nil, 0, notRegular(p)
	}
	f := &file{path: p.real}
	err = e.as(func() error {
		in, err = files.OpenNoFollow(p.real, os.O_RDONLY)
		if err != nil {
			return err
		}
		return f.look(in)
	})
	switch {
	case err != nil && in != nil:
		_ = in.Close()
		return nil, 0, notRegular(p)
	case err != nil:
		return nil, 0, unreadable(p.shown, err)
	}
	return in, f.info.Size(), nil
}

// unconverted returns a worker's error in words for the agent.
func unconverted(p place, err error) *Error {
	code := CodeUnsupported
	reason := err.Error()
	switch {
	case errors.Is(err, worker.ErrTime), errors.Is(err, worker.ErrMemory), errors.Is(err, worker.ErrAnswer),
		errors.Is(err, worker.ErrKilled):
		code = CodeTooLarge
		reason = "converting it was stopped, because " + reason
	case !errors.As(err, new(*worker.Error)):
		code = CodeCommandFailed
	}
	return &Error{code, fmt.Sprintf("Error in converting file to Markdown: %s. Please use Python code to read %s", reason, p.shown), err}
}

// notText returns the error of a file that is not text, with its kind.
func (e *Editor) notText(p place) *Error {
	kind := "of a kind that is not known"
	if in, _, err := e.openRegular(p); err == nil {
		defer in.Close()
		head := make([]byte, 512)
		n, _ := in.ReadAt(head, 0)
		if known := document.Describe(head[:n]); known != "" {
			kind = known
		}
	}
	return refuse(CodeBinary, "The file %s is not text but %s, with %d bytes. It cannot be shown.", p.shown, kind,
		p.info.Size())
}

func codeIs(err error, code Code) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}
