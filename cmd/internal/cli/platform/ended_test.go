package platform_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

// driver knows one sandbox, of which it says next what comes next.
type driver struct {
	sandbox.Driver

	states  []sandbox.State // the last one stays
	details sandbox.Details
	found   sandbox.Sandbox
}

func (d *driver) Get(context.Context, string) (*sandbox.Sandbox, error) {
	s := d.found
	s.State = d.states[0]
	if len(d.states) > 1 {
		d.states = d.states[1:]
	}
	if s.State == sandbox.Gone && s.Detail == "" {
		return nil, sandbox.ErrNotFound
	}
	return &s, nil
}

func (d *driver) Inspect(context.Context, *sandbox.Sandbox) (*sandbox.Details, error) {
	return &d.details, nil
}

func TestEnded(t *testing.T) {
	t.Parallel()
	cut := fmt.Errorf("reading: %w", io.ErrUnexpectedEOF)
	over := time.Now()
	for name, tt := range map[string]struct {
		err    error
		driver driver
		want   string // empty: err as it is
	}{
		"out of memory":  {cut, driver{states: []sandbox.State{sandbox.Stopped}, details: sandbox.Details{Ended: over, OutOfMemory: true, ExitCode: 137, Memory: 64e6}}, "it reached its memory limit of 64MB; start it with 'runtimectl start 0123456789ab', or read 'runtimectl logs 0123456789ab'"},
		"killed":         {cut, driver{states: []sandbox.State{sandbox.Ready, sandbox.Stopped}, details: sandbox.Details{Ended: over, ExitCode: 137}}, "its server was killed (exit code 137)"},
		"stopped":        {cut, driver{states: []sandbox.State{sandbox.Stopped}, details: sandbox.Details{Ended: over}}, "it was stopped"},
		"broken":         {cut, driver{states: []sandbox.State{sandbox.Stopped}, details: sandbox.Details{Ended: over, ExitCode: 2}}, "its server ended with exit code 2"},
		"time":           {cut, driver{states: []sandbox.State{sandbox.Stopped}, found: sandbox.Sandbox{Deadline: over}}, "its time was up"},
		"not recorded":   {cut, driver{states: []sandbox.State{sandbox.Stopped}}, "how is not recorded"},
		"removed":        {cut, driver{states: []sandbox.State{sandbox.Gone}}, "sandbox 0123456789ab was removed meanwhile"},
		"gone":           {cut, driver{states: []sandbox.State{sandbox.Gone}, found: sandbox.Sandbox{Detail: "its memory limit was reached"}}, "is gone: its memory limit was reached; remove it with 'runtimectl rm 0123456789ab', or read"},
		"another one":    {cut, driver{states: []sandbox.State{sandbox.Ready}, found: sandbox.Sandbox{Instance: "new"}}, "was removed meanwhile"},
		"it lives":       {cut, driver{states: []sandbox.State{sandbox.Ready}}, ""},
		"another error":  {errors.New("refused"), driver{states: []sandbox.State{sandbox.Stopped}}, ""},
		"without errors": {nil, driver{states: []sandbox.State{sandbox.Stopped}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.driver.found.ID = "0123456789ab"
			err := platform.Ended(t.Context(), &tt.driver, &sandbox.Sandbox{ID: "0123456789ab", State: sandbox.Ready}, tt.err)
			switch {
			case tt.want == "" && !errors.Is(err, tt.err):
				t.Errorf("got %v, want %v", err, tt.err)
			case tt.want != "" && (!errors.Is(err, command.ErrEnded) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
