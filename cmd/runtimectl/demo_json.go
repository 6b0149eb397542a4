package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/actiond/actiond/api"
)

// jsonReport prints one JSON object per step.
type jsonReport struct{ out io.Writer }

// stepJSON is a step as -o json prints it.
type stepJSON struct {
	// Step counts from 1.
	Step int    `json:"step"`
	Part string `json:"part"`
	Say  string `json:"say"`
	// Call is what was called, or would have been, such as "POST /execute_action".
	Call string `json:"call"`
	// Request is the body that was sent. Of an upload it says what was uploaded.
	Request json.RawMessage `json:"request"`
	Want    string          `json:"want"`
	// Status is "ok", "failed" or "skipped"; Reason says why in the latter two.
	Status status `json:"status"`
	Reason string `json:"reason,omitempty"`
	// Observation is the answer to an action, Files the names after an upload.
	Observation json.RawMessage `json:"observation,omitempty"`
	Files       []string        `json:"files,omitempty"`
	// Diff is what the observation says was changed.
	Diff string `json:"diff,omitempty"`
	// Milliseconds is how long the answer took; absent where nothing was sent.
	Milliseconds float64 `json:"ms,omitempty"`
}

func (j jsonReport) part(part) error       { return nil }
func (j jsonReport) begin(int, step) error { return nil }

func (j jsonReport) end(number int, p part, s step, r result) error {
	call, request, err := s.request()
	if err != nil {
		return err
	}
	line := stepJSON{
		Step: number, Part: p.title, Say: s.say, Call: call, Request: request, Want: s.want.words(s.kind()),
		Status: r.status, Reason: r.reason, Files: r.files, Milliseconds: milliseconds(r.took),
	}
	if r.observation != nil {
		line.Diff = diff(r.observation)
		if line.Observation, err = api.EncodeObservation(r.observation); err != nil {
			return err
		}
	}
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encoding step %d: %w", number, err)
	}
	_, err = j.out.Write(append(data, '\n'))
	return err
}

// request returns what is called and with which body.
func (s step) request() (call string, body []byte, err error) {
	if s.upload == nil {
		request := api.Request{Action: s.action}
		if s.seconds > 0 {
			request.Timeout = &s.seconds
		}
		body, err = api.EncodeRequest(request)
		return "POST /execute_action", body, err
	}
	body, err = json.Marshal(map[string]any{
		"destination": s.upload.destination, "file": s.upload.name, "bytes": len(s.upload.archive),
	})
	return "POST /upload_file", body, err
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
