// Package quietlog closes the standard logger of a program that imports it. Libraries write to it what they
// were sent: net/http the bytes behind a response, which may have the value of a secret. The programs have
// loggers of their own.
package quietlog

import (
	"io"
	"log"
)

func init() { //nolint:gochecknoinits // before anything is served, and no command of a program can be without it
	log.SetOutput(io.Discard)
}
