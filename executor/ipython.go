package executor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/executor/notebook"
)

// The words of the run_ipython observation are the reference's: clients and
// their tests match on them (docs/reference/openhands-protocol.md, section 6).
const (
	noOutput      = "[Code executed successfully with no output]"
	cellTimedOut  = "[Execution timed out (%s seconds).]"
	cellCancelled = "[The cell was cancelled by a request.]"
	kernelSuffix  = "\n[Jupyter current working directory: %s]\n[Jupyter Python interpreter: %s]"

	installKernel = "run_ipython needs Python with ipykernel, which this sandbox does not have. Install it with `apt-get install python3-ipykernel` " +
		"or `pip install ipykernel` and run the cell again; until then run Python with the run action."
	noJupyter = "run_ipython is switched off: this server was started with --plugins that do not name jupyter"
)

// agentSkills is the cell that the reference runs first where the plugin was
// asked for; openhandsCode is where its images keep the package. An image without
// the package has no skills, which is no failure.
const (
	openhandsCode = "/openhands/code"
	agentSkills   = "import sys\nsys.path.append('" + openhandsCode + "')\n" + `try:
    import openhands
except ModuleNotFoundError as e:
    if e.name != 'openhands': raise
else:
    from openhands.runtime.plugins.agent_skills.agentskills import *
`
)

// newNotebook returns the notebook, which starts nothing yet; nil where the
// launcher did not ask for it.
func newNotebook(cfg Config) *notebook.Notebook {
	if cfg.Plugins != nil && !slices.Contains(cfg.Plugins, "jupyter") {
		return nil
	}
	n := notebook.Config{Env: environment(cfg.Env, cfg.User, nil), User: cfg.User}
	if slices.Contains(cfg.Plugins, "agent_skills") {
		n.Init = agentSkills
	}
	return notebook.New(n)
}

// ipython runs a cell in the kernel of its session and reports its output, unless
// w.Output is nil.
func (e *Executor) ipython(
	ctx context.Context, a api.IPythonAction, req api.Request, w api.Watch, t *turn,
) (api.Observation, error) {
	if e.notebook == nil {
		return nil, api.BadRequest(noJupyter)
	}
	cell := notebook.Cell{Code: a.Code, Dir: e.shellDir(req.Session), Timeout: -1, Cancelled: w.Cancelled, Queue: w.Queue}
	cell.Begin = func() error {
		t.give()
		if err := t.check(); err != nil {
			return err
		}
		return w.Begins()
	}
	waiting := ctx
	begun := time.Now()
	if timeout, ok := limit(req); ok {
		cell.Timeout = timeout
		var stop context.CancelFunc
		waiting, stop = context.WithTimeoutCause(ctx, timeout, notebook.ErrBusy)
		defer stop()
	}
	name := req.Session
	if name == "" {
		name = defaultSession
	}
	var result notebook.Result
	defer e.followed.leaves(0) // it may have
	err := t.wait(waiting, w.Queue)
	if cell.Timeout >= 0 {
		cell.Timeout = max(0, cell.Timeout-time.Since(begun))
	}
	switch {
	case err != nil:
	case w.Output == nil:
		result, err = e.notebook.Run(ctx, name, cell)
	default:
		result, err = e.notebook.Stream(ctx, name, cell,
			func(c notebook.Chunk) { w.Output(api.Output{Offset: c.Offset, Missed: c.Missed, Data: c.Data}) })
	}
	switch {
	case err == nil:
		if result.InitFailed != "" {
			e.cfg.Logger.WarnContext(ctx, "a kernel has no agent_skills", slog.String("session", name),
				slog.String("reason", result.InitFailed))
		}
		return observeCell(a, cell, req, result), nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, notebook.ErrClosed):
		return api.ErrorObservation{Content: fmt.Sprintf("Session %q was closed before the cell began: nothing ran.", name), Outcome: api.OutcomeNotStarted}, nil
	case errors.Is(err, notebook.ErrNotBegun):
		return nil, err
	case errors.Is(err, notebook.ErrMany):
		return nil, api.TooMany(fmt.Sprintf("there are %d kernels already: close a session first (DELETE /v1/sessions/NAME)", notebook.MaxKernels))
	case errors.Is(err, notebook.ErrBusy):
		return nil, api.TooMany(fmt.Sprintf("session %q still runs another cell: wait for it, use another session, or close this one (DELETE /v1/sessions/NAME)", name))
	case errors.Is(err, notebook.ErrAbsent):
		return api.ErrorObservation{Content: installKernel + "\n" + err.Error(), Code: codeUnsupported, Outcome: api.OutcomeNotStarted}, nil
	}
	return api.ErrorObservation{Content: "The Python kernel cannot be started: " + err.Error(), Outcome: api.OutcomeNotStarted}, nil
}

// kernelStates are the words for the states of a kernel.
var kernelStates = map[notebook.State]string{notebook.Idle: "idle", notebook.Busy: "busy", notebook.Ended: "ended"}

// addKernels adds to a list of shells the kernels of their sessions, and the
// sessions that have nothing else.
func (e *Executor) addKernels(list []api.Session, kernels []notebook.Info) []api.Session {
	for _, k := range kernels {
		i := slices.IndexFunc(list, func(s api.Session) bool { return s.Name == k.Session })
		if i < 0 {
			i = len(list)
			list = append(list, api.Session{Name: k.Session, State: "idle", WorkingDir: e.shellDir(k.Session), Started: k.Since})
		}
		list[i].Kernel = &api.Kernel{State: kernelStates[k.State], Since: k.Since, Python: k.Python, PID: k.PID}
		if k.State == notebook.Busy {
			list[i].State = "busy"
		}
	}
	return list
}

// shellDir is where the shell of that session is, or else the default one's.
func (e *Executor) shellDir(name string) string {
	for _, s := range []string{name, ""} {
		if shell := e.sessions.existing(s); shell != nil {
			return shell.Info().Dir
		}
	}
	return e.cfg.WorkingDir
}

// observeCell puts a result into words.
func observeCell(a api.IPythonAction, cell notebook.Cell, req api.Request, r notebook.Result) api.Observation {
	var notes []string
	if r.TimedOut {
		notes = append(notes, fmt.Sprintf(cellTimedOut, api.FormatSeconds(*req.Timeout)))
	}
	if r.Interrupted {
		notes = append(notes, cellCancelled)
	}
	if r.Starting {
		notes = append(notes, "[The cell did not run: the kernel is still starting, and the next cell will find it.]")
	}
	if r.InitFailed != "" {
		notes = append(notes, fmt.Sprintf("[agent_skills could not be imported, and this kernel does not have them: %s]", r.InitFailed))
	}
	if r.Ended != "" {
		notes = append(notes, fmt.Sprintf("[The kernel %s. The next cell runs in a new one, without the variables and imports of this one.]", r.Ended))
	}
	if r.Lost != "" {
		notes = append(notes, fmt.Sprintf("[The kernel of the cells before %s. This cell ran in a new one, without their variables and imports.]", r.Lost))
	}
	content := r.Text
	if !a.Reference {
		content = notebook.Screen(content)
	}
	switch {
	case content == "" && len(notes) == 0:
		content = noOutput
	case content != "" && len(notes) > 0 && !strings.HasSuffix(content, "\n"):
		content += "\n"
	}
	content = strings.TrimRight(content+strings.Join(notes, "\n"), pythonSpace)
	if a.IncludeExtra {
		content += fmt.Sprintf(kernelSuffix, cell.Dir, r.Python)
	}
	o := api.IPythonObservation{Content: content, Code: a.Code, ImageURLs: r.Images}
	switch {
	case r.Starting:
		o.Outcome, o.Failure = api.OutcomeNotStarted, api.CodeTimedOut
	case r.TimedOut:
		o.Failure = api.CodeTimedOut
	case r.Interrupted:
		o.Outcome = api.OutcomeCancelled
	case r.Raised || r.Ended != "":
		o.Failure = api.CodeFailed
	}
	o.Outcome, o.Failure = api.OutcomeOf(o)
	return o
}

// pythonSpace are the ASCII characters that Python's rstrip removes.
const pythonSpace = " \t\n\v\f\r\x1c\x1d\x1e\x1f"

// notebookCapability returns the capability of the notebook, without starting a kernel.
func (e *Executor) notebookCapability() api.Capability {
	if e.notebook == nil {
		return api.Capability{Detail: noJupyter}
	}
	if python := e.notebook.Python(); python != "" {
		return api.Capability{Available: true, Detail: "ipykernel of " + python + ", started on first use"}
	}
	return api.Capability{Detail: installKernel}
}
