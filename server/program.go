package server

import (
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/actiond/actiond/actions"
	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/internal/httpserver"
)

const (
	// inputTime bounds one request: one that was cut need not hold its place forever.
	inputTime = time.Hour
	// defaultInputWait is how long a program may take nothing of its input.
	defaultInputWait = 30 * time.Second
)

// findProgram returns the program of the action in the path once it was started.
func (s *Server) findProgram(r *http.Request) (api.Program, error) {
	run, err := s.findAction(r)
	if err != nil {
		return nil, err
	}
	p, err := run.Program(r.Context())
	return p, programError(run, err)
}

// programError makes a refusal of the errors of a run that has no program.
func programError(run *actions.Run, err error) error {
	switch {
	case errors.Is(err, actions.ErrNotProgram):
		return refuse(http.StatusConflict, "The action is a %s: only the program of an %s takes this; type into a run with is_input in its session",
			run.Info().Kind, api.ExecAction{}.Kind())
	case errors.Is(err, actions.ErrEnded):
		return refuse(http.StatusConflict, "The action has ended (%s)", run.Info().State)
	}
	return err
}

// writeInput writes the body of a request to the input of a program, as the program
// takes it, and answers with how much was taken: with 202 where the program took nothing
// for a while.
func (s *Server) writeInput(w http.ResponseWriter, r *http.Request) error {
	run, err := s.findAction(r)
	if err != nil {
		return err
	}
	offset, err := number(r, "offset", math.MaxUint64, math.MaxInt64)
	if err != nil {
		return err
	}
	if offset == math.MaxUint64 {
		return invalid("query.offset: must come: the offset of the first byte in the input, from 0")
	}
	wait, err := waitIn(r, defaultInputWait, maxWait)
	if err != nil {
		return err
	}
	end, err := yes(r, "end")
	if err != nil {
		return err
	}
	// The program says how fast the body is read.
	httpserver.PatientBody(r)
	conn := http.NewResponseController(w)
	_ = conn.SetReadDeadline(time.Now().Add(inputTime)) // tests have no connection
	next, err := run.WriteInput(r.Context(), actions.Input{
		Body: r.Body, Offset: int64(offset), End: end, Wait: wait, //nolint:gosec // at most MaxInt64
		Interrupt: func() { _ = conn.SetReadDeadline(time.Now()) },
	})
	answer := api.ProgramInput{Offset: next, Ended: err == nil && end}
	switch {
	case errors.Is(err, actions.ErrNotTaken):
		return writeJSON(w, http.StatusAccepted, answer)
	case errors.Is(err, actions.ErrTakenOver):
		w.Header().Set("Retry-After", "1")
		return refuse(http.StatusConflict, "Another request writes the input, which goes on at %d: come back in a second",
			next)
	case errors.Is(err, actions.ErrBody):
		return unreadBody(r, err)
	case err != nil:
		return programError(run, err)
	}
	return writeJSON(w, http.StatusOK, answer)
}

// signalProgram sends a signal to a program.
func (s *Server) signalProgram(w http.ResponseWriter, r *http.Request) error {
	signal, err := decodeJSON(r, api.DecodeProgramSignal)
	if err != nil {
		return err
	}
	program, err := s.findProgram(r)
	if err == nil {
		err = program.Signal(signal.Signal)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// resizeProgram gives the terminal of a program a size.
func (s *Server) resizeProgram(w http.ResponseWriter, r *http.Request) error {
	size, err := decodeJSON(r, api.DecodeTTY)
	if err != nil {
		return err
	}
	program, err := s.findProgram(r)
	if err == nil {
		err = program.Resize(size)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
