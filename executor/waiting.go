package executor

import (
	"fmt"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/bash"
	"github.com/actiond/actiond/executor/internal/proc"
	"github.com/actiond/actiond/executor/ports"
	"github.com/actiond/actiond/executor/process"
	"github.com/actiond/actiond/executor/waiting"
	"github.com/actiond/actiond/internal/lazyregexp"
	"github.com/actiond/actiond/internal/shorten"
)

// maxPrompt bounds a prompt, in bytes.
const maxPrompt = 200

// place is where a command can be looked at.
type place struct {
	target     waiting.Target
	lastOutput time.Time
	line       string
}

// shellPlace is that of the command that runs in a shell; false where none does.
func shellPlace(shell *bash.Session) (place, bool) {
	f, ok := shell.Foreground()
	return place{waiting.Target{PID: f.PID, Shell: true, Group: f.Group, Terminal: f.Terminal}, f.LastOutput, f.Line}, ok
}

// programPlace is that of a program; false where it has ended.
func programPlace(p *process.Process) (place, bool) {
	at, ok := p.Place()
	return place{waiting.Target{PID: at.PID, Group: at.Group, Terminal: at.Terminal, Stdin: at.Stdin}, at.LastOutput, at.Line}, ok
}

// look returns the activity of the command at a place; nil where ok is false.
func (e *Executor) look(at place, ok bool) *api.Waiting {
	if !ok {
		return nil
	}
	return e.looksAt([]place{at})[0]
}

// looksAt returns the activities of the commands at several places.
func (e *Executor) looksAt(places []place) []*api.Waiting {
	targets := make([]waiting.Target, 0, len(places))
	for _, at := range places {
		targets = append(targets, at.target)
	}
	found := e.activity.Inspect(targets...)
	open := map[int][]int{}
	if len(places) > 0 {
		for _, p := range e.listPorts() {
			open[p.PID] = append(open[p.PID], int(p.Port))
		}
	}
	all := make([]*api.Waiting, 0, len(places))
	for i, at := range places {
		all = append(all, waitingOf(found[i], at, open))
	}
	return all
}

// listPorts lists the ports, or none where the kernel does not say: a process can hold up the
// reading of its environment, and must not hold up an answer by it.
func (e *Executor) listPorts() []ports.Port {
	var list []ports.Port
	if !e.listing.Do(func(time.Time) { list, _ = e.ports.List() }) {
		return nil
	}
	return list
}

// waitingOf puts a finding into words.
func waitingOf(f waiting.Finding, at place, ports map[int][]int) *api.Waiting {
	w := &api.Waiting{
		For: string(f.Reason), On: f.On, PID: f.Process.PID, Command: f.Process.Command, Holder: f.Holder, More: f.More,
		Ports: ports[f.Process.PID],
	}
	if !at.lastOutput.IsZero() {
		w.Silent = api.Float(max(0, time.Since(at.lastOutput)).Round(100 * time.Millisecond).Seconds())
	}
	for _, or := range f.Or {
		w.Or = append(w.Or, string(or))
	}
	if f.Reason == waiting.Input {
		w.Prompt = prompt(at.line)
	}
	for _, p := range f.Others {
		w.Processes = append(w.Processes, api.WaitingProcess{PID: p.PID, Command: p.Command, Background: p.Background, Ports: ports[p.PID]})
	}
	w.Text = sentence(w)
	return w
}

// sequence is a control sequence of a terminal, or a command to the operating system.
var sequence = lazyregexp.New("\x1b(\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(\x07|\x1b\\\\)?|[ -/]*[0-~])")

// prompt returns the last line of an output without its control sequences, and without
// the text that a carriage return has had overwritten.
func prompt(line string) string {
	line = strings.TrimRight(sequence().ReplaceAllString(line, ""), "\r")
	line = line[strings.LastIndexByte(line, '\r')+1:]
	return shorten.Text(strings.TrimSpace(proc.Printable(line)), maxPrompt)
}

// sentence describes the activity of a command.
func sentence(w *api.Waiting) string {
	who := "The command"
	if w.PID != 0 {
		who = fmt.Sprintf("Process %d (%s)", w.PID, w.Command)
	}
	var b strings.Builder
	b.WriteString(who + " " + verb(w))
	for _, or := range w.Or {
		b.WriteString(", or " + verb(&api.Waiting{For: or}))
	}
	b.WriteString(".")
	if w.Prompt != "" {
		fmt.Fprintf(&b, " The prompt is %q.", w.Prompt)
	}
	fmt.Fprintf(&b, " The last output came %s seconds ago.", api.FormatSeconds(float64(w.Silent)))
	var others []string
	for _, p := range w.Processes {
		if !p.Background && len(p.Ports) == 0 {
			continue
		}
		what := []string{fmt.Sprintf("%d (%s)", p.PID, p.Command)}
		for _, port := range p.Ports {
			what = append(what, fmt.Sprintf("port %d", port))
		}
		others = append(others, strings.Join(what, ", "))
	}
	if len(others) > 0 {
		b.WriteString(" It runs beside: " + strings.Join(others, "; ") + ".")
	}
	return b.String()
}

// verbs describe the activity of a process, and where it is known, its object.
var verbs = map[string][2]string{
	api.WaitsForInput:      {"waits for input", "waits for input on the %s"},
	api.WaitsBusy:          {"is busy", "is busy: %s"},
	api.WaitsForDisk:       {"waits in the kernel, most often for a disk", "waits in the kernel, most often for a disk: %s"},
	api.WaitsStopped:       {"is stopped by a signal", "is stopped by a signal: %s"},
	api.WaitsForNetwork:    {"waits for the network", "waits for the network: %s"},
	api.WaitsForTime:       {"sleeps", "sleeps: %s"},
	api.WaitsForLock:       {"waits for a lock", "waits for a lock of %s"},
	api.WaitsUnknown:       {"has not ended, and what it waits for is not known", "has not ended, and what it waits for is not known: %s"},
	api.WaitsForConnection: {"waits for a client to connect", "waits for a client to connect to %s"},
	api.WaitsForOther:      {"waits", "waits for %s"},
	api.WaitsForMutex:      {"waits for another thread or process", "waits for %s"},
	api.WaitsForPipe:       {"waits for the other side of a pipe", "waits at a pipe: %s"},
	api.WaitsForChild:      {"waits for a child process", "waits for a child process: %s"},
}

func verb(w *api.Waiting) string {
	words := verbs[w.For]
	if w.On == "" {
		return words[0]
	}
	text := fmt.Sprintf(words[1], w.On)
	if w.Holder != 0 {
		text += fmt.Sprintf(", which process %d holds", w.Holder)
	}
	return text
}

// addWaiting adds to the busy sessions in a list the activity of their commands.
func (e *Executor) addWaiting(list []api.Session) {
	var places []place
	var busy []int
	for i, session := range list {
		if shell := e.sessions.existing(session.Name); shell != nil && session.State == "busy" {
			if at, ok := shellPlace(shell); ok {
				places, busy = append(places, at), append(busy, i)
			}
		}
	}
	for i, w := range e.looksAt(places) {
		list[busy[i]].Waiting = w
	}
}
