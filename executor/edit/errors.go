package edit

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/actiond/actiond/internal/files"
)

// Code is the machine word of an error.
type Code string

// The codes of this package's errors, beside those of [files.Code].
const (
	CodeMissingArgument Code = "missing_argument"
	CodeInvalidArgument Code = "invalid_argument"
	CodeFileNotFound    Code = "file_not_found"
	CodeIsDirectory     Code = "is_directory"
	CodeNotRegular      Code = "not_regular_file"
	CodeBinary          Code = "binary_file"
	CodeTooLarge        Code = "file_too_large"
	CodePermission      Code = "permission_denied"
	CodePathNotAllowed  Code = "path_not_allowed"
	CodeNoMatch         Code = "no_match"
	CodeMultipleMatches Code = "multiple_matches"
	CodeNoChange        Code = "no_change"
	CodeAlreadyExists   Code = "already_exists"
	CodeNoHistory       Code = "no_history"
	CodeConflict        Code = "conflict"
	CodeNotEncodable    Code = "not_encodable"
	CodeInvalidRange    Code = "invalid_range"
	CodeUnsupported     Code = "unsupported"
	CodeNotDirectory    Code = "not_directory"
	CodeNoSpace         Code = "no_space"
	CodeCommandFailed   Code = "command_failed" // the system failed, such as by an input/output error
)

// Error is the reason why a command was refused or failed. The file is then unchanged. All methods of [Editor] except
// Close return errors of this type.
type Error struct {
	Code    Code
	Message string // for the agent
	cause   error
}

// Error returns the message for the agent.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, nil for an error of the caller.
func (e *Error) Unwrap() error { return e.cause }

var (
	errChanged  = errors.New("changed by another process while it was being edited")
	errBinary   = errors.New("binary content")
	errTooLarge = errors.New("file too large")
)

func refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func invalid(code Code, parameter, value, hint string) *Error {
	return refuse(code, "Invalid `%s` parameter: %s. %s", parameter, value, hint)
}

func missing(parameter, command string) *Error {
	return refuse(CodeMissingArgument, "Parameter `%s` is required for command: %s.", parameter, command)
}

func notFound(path string) *Error {
	return invalid(CodeFileNotFound, "path", path,
		fmt.Sprintf("The path %s does not exist. Please provide a valid path.", path))
}

// stale reports that a file is not the version that the caller knows.
func stale(p place, now hash) *Error {
	return refuse(CodeConflict, "The file %s is not the one that was read: its SHA-256 is %s now, not %s. Nothing was changed. "+
		"Read it again and repeat the edit.", p.shown, now, p.want)
}

func alreadyExists(path string) *Error {
	return invalid(CodeAlreadyExists, "path", path,
		fmt.Sprintf("File already exists at: %s. Cannot overwrite files using command `create`.", path))
}

func unreadable(path string, err error) *Error { return systemError(path, "read", err) }

func unwritable(path string, err error) *Error { return systemError(path, "write to", err) }

// systemError describes a file system error as the reference does, which quotes Python's OSError.
func systemError(path, doing string, err error) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	if errors.Is(err, errChanged) {
		return &Error{CodeConflict, fmt.Sprintf("The file %s was changed by another process while it was being edited, so nothing was written. "+
			"View it and try again.", path), err}
	}
	message := fmt.Sprintf("Ran into %s while trying to %s %s", describe(path, err), doing, path)
	return &Error{Code(files.Code(err)), message, err}
}

func describe(path string, err error) string {
	if strings.IndexByte(path, 0) >= 0 {
		return "embedded null byte"
	}
	number, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return err.Error()
	}
	text := number.Error()
	first, size := utf8.DecodeRuneInString(text)
	return fmt.Sprintf("[Errno %d] %c%s: '%s'", int(number), unicode.ToUpper(first), text[size:], path)
}
