package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/edit"
	"github.com/actiond/actiond/internal/files"
)

// IncomingFile is the new content of a whole file, which is received before it takes the
// file's place. The caller must call Discard. It is not safe for concurrent use.
type IncomingFile struct {
	e    *Executor
	in   *edit.Incoming
	path string
}

// WriteInPlace runs write inside [Executor.As], which writes over the open file w. The old
// content is put back where write fails, and at the next start after a crash.
func (e *Executor) WriteInPlace(w *os.File, write func() error) error {
	return e.editor.WriteInPlace(w, write)
}

// StageFile begins a new content for the file at an absolute path: a temporary file
// beside it, made with the user's rights. ctx bounds the wait for the turn. The error is
// an *api.Error where the path can have no file.
func (e *Executor) StageFile(ctx context.Context, path string) (*IncomingFile, error) {
	release, err := e.files.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	in, err := e.editor.Stage(path)
	if err != nil {
		return nil, fileRefusal(err, path)
	}
	return &IncomingFile{e, in, path}, nil
}

// Fill reads the whole content and brings it to the disk. It returns its SHA-256 in
// hexadecimal and its size. The error is that of content, or an *api.Error where the disk
// is full.
func (f *IncomingFile) Fill(content io.Reader) (sha256 string, size int64, err error) {
	err = f.in.Fill(content)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = noSpace(err, f.path)
	}
	return f.in.SHA256, f.in.Size, err
}

// Put gives the content its place, and the mode where that is not nil. The error is an
// *api.Error where nothing was changed: status 412 for a file that does not meet the
// conditions.
func (f *IncomingFile) Put(ctx context.Context, c api.FileConditions, mode *fs.FileMode) (api.Observation, error) {
	put := func() (edit.Result, error) { return f.e.editor.Put(f.in, edit.Conditions(c), mode) }
	return f.e.changeFile(ctx, f.path, put, f.in.Size)
}

// Discard removes the received content, unless it has replaced the file.
func (f *IncomingFile) Discard() { f.in.Discard() }

// RemoveFile removes a file or a symbolic link, with the user's rights. The error is as
// that of [IncomingFile.Put].
func (e *Executor) RemoveFile(ctx context.Context, path string, c api.FileConditions) (api.Observation, error) {
	remove := func() (edit.Result, error) { return e.editor.Remove(path, edit.Conditions(c)) }
	return e.changeFile(ctx, path, remove, 0)
}

func (e *Executor) changeFile(
	ctx context.Context, path string, change func() (edit.Result, error), size int64,
) (api.Observation, error) {
	release, err := e.files.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	r, err := change()
	if err != nil {
		return nil, fileRefusal(err, path)
	}
	undoable := r.HistoryErr == nil
	e.noteHistory(ctx, &r)
	return api.FileObservation{Content: r.Text, Path: r.Path, SHA256: r.SHA256, Size: size, Created: !r.Existed, Undoable: undoable}, nil
}

func noSpace(err error, path string) error {
	return api.FileError(api.Fault{Code: files.Code(err), Path: path, Errno: files.Errno(err)},
		"The file needs more space than is left on its file system")
}

// fileRefusal makes an error of the editor about the file at a path a refusal, or the error of a server that broke.
func fileRefusal(err error, path string) error {
	complaint, known := errors.AsType[*edit.Error](err)
	switch {
	case errors.Is(err, edit.ErrCondition):
		refusal := api.Unmet("The file is not the one that If-Match or If-None-Match asks for; nothing was changed")
		refusal.Fault = api.Fault{Code: string(edit.CodeConflict), Path: path}
		return refusal
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return noSpace(err, path)
	case !known:
		return err
	case complaint.Code != edit.CodeCommandFailed, errors.Is(err, syscall.ETXTBSY):
		return api.FileError(api.Fault{Code: string(complaint.Code), Path: path, Errno: files.Errno(err)}, complaint.Message)
	}
	return fmt.Errorf("changing a file: %w", err)
}
