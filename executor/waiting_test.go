package executor_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor"
)

// runs runs a command and returns what is known of it then.
func runs(t *testing.T, e *executor.Executor, a api.RunAction, timeout float64) api.RunObservation {
	t.Helper()
	o, err := e.Do(t.Context(), api.Request{Action: a, Timeout: &timeout})
	if err != nil {
		t.Fatalf("%+v: %v", a, err)
	}
	return o.(api.RunObservation)
}

// A run that asks for it is answered once its command waits for input, with the prompt.
func TestReturnOnInput(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{SoftTimeout: time.Hour})
	o := runs(t, e, api.RunAction{Command: `read -p "Your name: " x; echo "hello $x"; read -p "Sure? " y`, ReturnOnInput: true}, 300)
	w := o.Metadata.Waiting
	if w == nil || w.For != api.WaitsForInput || w.On != "terminal" || w.Prompt != "Your name:" || o.Outcome != api.OutcomeRunning ||
		!strings.HasPrefix(o.Metadata.Suffix, "\n[The command waits for input. ") {
		t.Fatalf("got %+v, %+v", o, w)
	}
	if text, _ := api.Text(o); !strings.Contains(text, "waits for input on the terminal. The prompt is \"Your name:\".") {
		t.Errorf("a model reads %q", text)
	}
	list := e.Sessions()
	if len(list) != 1 || list[0].Waiting == nil || list[0].Waiting.For != api.WaitsForInput || list[0].Waiting.Prompt != "Your name:" {
		t.Errorf("the session is %+v", list)
	}
	o = runs(t, e, api.RunAction{Command: "Ada", IsInput: true, ReturnOnInput: true}, 300)
	if w := o.Metadata.Waiting; w == nil || w.For != api.WaitsForInput || w.Prompt != "Sure?" || !strings.Contains(o.Content, "hello Ada") {
		t.Fatalf("got %+v, %+v", o, w)
	}
	o = runs(t, e, api.RunAction{Command: "y", IsInput: true, ReturnOnInput: true}, 300)
	if o.Metadata.ExitCode != 0 || o.Metadata.Waiting != nil {
		t.Errorf("got %+v", o)
	}
	if list := e.Sessions(); list[0].Waiting != nil {
		t.Errorf("an idle session is %+v", list[0])
	}
}

// A command that does not wait for input is not answered sooner for asking, and the answer
// says what it does, also of what the shell has in the background.
func TestWaitingOfRun(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{})
	runs(t, e, api.RunAction{Command: "python3 -c 'import socket,time; s=socket.create_server((\"127.0.0.1\",0)); print(\"up\"); s.accept()' >up & until grep -q up up 2>/dev/null; do sleep .05; done"}, 300)
	for range 100 { // under load, the sleep may be about to begin
		runs(t, e, api.RunAction{Command: "C-c", IsInput: true}, 300)
		o := runs(t, e, api.RunAction{Command: "sleep 1000", ReturnOnInput: true}, 1)
		w := o.Metadata.Waiting
		if w == nil || w.For == api.WaitsForInput || o.Outcome != api.OutcomeRunning {
			t.Fatalf("got %+v, %+v", o, w)
		}
		if w.For != api.WaitsForTime {
			continue
		}
		if w.Command != "sleep 1000" || w.Prompt != "" || !strings.Contains(w.Text, "(sleep 1000) sleeps.") {
			t.Errorf("got %+v", w)
		}
		server := slices.IndexFunc(w.Processes, func(p api.WaitingProcess) bool { return p.Background && len(p.Ports) == 1 })
		if server < 0 { // under load, the look ends before it has found the ports
			t.Logf("the server is not among %+v", w.Processes)
			continue
		}
		if !strings.Contains(w.Text, "It runs beside: ") {
			t.Errorf("got %q", w.Text)
		}
		return
	}
	t.Error("it never slept beside its server")
}

// The words of the recorded protocol do not change.
func TestWaitingLeavesTexts(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{SoftTimeout: 100 * time.Millisecond})
	o := runs(t, e, api.RunAction{Command: "cat"}, 300)
	if !strings.HasPrefix(o.Metadata.Suffix, "\n[The command has no new output after 0.1 seconds. You may wait longer") || !strings.HasSuffix(o.Metadata.Suffix, "future commands.]") {
		t.Errorf("got %q", o.Metadata.Suffix)
	}
	if o.Metadata.Waiting == nil {
		t.Error("what it waits for is not said")
	}
}

// The reason for which a program waits is said while it runs, and in its answer.
func TestWaitingOfExec(t *testing.T) {
	t.Parallel()
	e, _ := start(t, executor.Config{})
	req := api.Request{Action: api.ExecAction{
		Command: `printf 'line\r\n\033[1mPassphrase: \033[0m'; read x </dev/tty`, TTY: &api.TTY{Rows: 24, Cols: 80}, KillAfter: 300,
	}}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	looks, over := make(chan func() *api.Waiting, 1), make(chan struct{})
	go func() {
		defer close(over)
		_, _ = e.Watch(ctx, req, api.Watch{Looks: func(look func() *api.Waiting) { looks <- look }})
	}()
	look := <-looks
	for w := look(); w == nil || w.For != api.WaitsForInput || w.Prompt != "Passphrase:"; w = look() {
		if w == nil {
			t.Fatal("it ended")
		}
	}
	leave()
	<-over
	for {
		o, err := e.Do(t.Context(), api.Request{Action: req.Action, Timeout: new(1.0)})
		if err != nil {
			t.Fatal(err)
		}
		if w := o.(api.ExecObservation).Waiting; w == nil {
			t.Fatalf("got %+v", o)
		} else if w.For == api.WaitsForInput && w.Prompt == "Passphrase:" { // under load it may take longer
			break
		}
	}
}
