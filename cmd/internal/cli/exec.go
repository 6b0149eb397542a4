package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/internal/channel"
	"github.com/actiond/actiond/internal/random"
	"github.com/actiond/actiond/internal/shellquote"
	"github.com/actiond/actiond/sandbox"
)

func (p *program) exec() *cobra.Command {
	var opts execFlags
	c := &cobra.Command{
		Use:   "exec [flags] SANDBOX -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a sandbox",
		Long: `Exec runs a command in a sandbox, shows its output as it comes, standard output
and standard error apart, and exits with the command's own exit code. Its standard
input is empty; with --interactive it is this one, as it comes, and with --session
once it has ended.

With --tty the command has a terminal of its own, of the size of this one, for its
input and both outputs. With --interactive what you type goes to it, also Ctrl-C;
Ctrl-P Ctrl-Q leaves, and the command goes on. With --detach the answer is the
id of the action, at once, which 'runtimectl action follow', 'output', 'wait' and
'cancel' take.

With --session it runs in that persistent shell instead, "default" being the one
that agents use if they name none: directory, variables and functions are those
of the commands before it, and stay for those after it. It is on a terminal there:
what it writes to standard output and standard error comes out together.

Ctrl-C cancels the command, unless it is typed into a terminal of its own, and so
does the end of --timeout: it and all that it started get SIGINT, two seconds later
SIGTERM, and after two more SIGKILL. With --session it gets Ctrl-C alone. What a
command leaves behind when it ends by itself lives on. Where the connection breaks
and does not come back, the command goes on, and the message says how to follow it.

With --user root, or another name or number of a user, in a sandbox created with
--allow-root, the command runs as that user, in / or in --workdir, and with nothing in
its environment but what --env gives and what every user needs. A --workdir of the
agent's is a risk: it has the files that the command may run.

The exit code is the command's, or 128 and the number of the signal that ended it;
124 after --timeout, 125 when the command could not be brought to run, 126 when it
cannot be run and 127 when it is not there.`,
		Example: `  runtimectl exec build -- make -j4
  runtimectl exec build -- sh -c 'cd src && ls | wc -l'
  tar c src | runtimectl exec -i build -- tar x
  runtimectl exec -it build -- vi notes.txt
  id=$(runtimectl exec -d build -- make) && runtimectl action follow build "$id"
  runtimectl exec --session default build -- pwd
  runtimectl exec --user root build -- apt-get install -y jq`,
		Annotations: map[string]string{command.RunsCommands: "yes"},
	}
	opts.add(c)
	c.Flags().BoolVarP(&opts.detach, "detach", "d", false, "print the id of the action, and do not wait")
	c.Flags().StringVarP(&opts.user, "user", "u", "",
		"run as `USER`, a name or a number, where the sandbox was created with --allow-root")
	c.Flags().BoolVar(&opts.changes, "changes", false, "say on standard error which files of the workspace it changed")
	_ = c.RegisterFlagCompletionFunc("user", cobra.FixedCompletions([]string{api.UserRoot}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	opts.addPlace(c)
	c.ValidArgsFunction = p.CompleteSandboxes(1, platform.Running...)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ref, words, err := splitCommand(cmd, args, false)
		if err == nil && len(words) == 0 {
			err = missingCommand(cmd)
		}
		if err != nil {
			return command.Usage(cmd, err)
		}
		if err := opts.prepare(p.Getenv); err != nil {
			return command.Usage(cmd, err)
		}
		input, err := p.spool(cmd, opts)
		if err != nil {
			return err
		}
		defer input.close()
		return p.On(cmd.Context(), ref, func(_ sandbox.Driver, s *sandbox.Sandbox) error {
			return p.performHinted(cmd.Context(), s, words, opts, input)
		})
	}
	return c
}

// variableName matches the names that shells accept for variables.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// execFlags say how a command is run in a sandbox.
type execFlags struct {
	session string // "" for one of its own
	user    string // "" for the sandbox's
	timeout time.Duration
	env     []string
	workDir string
	feed    bool // standard input is the command's
	tty     bool // it has a terminal of its own
	detach  bool // it is not waited for
	changes bool // its changes are shown

	ephemeral bool // its sandbox is removed afterwards

	variables map[string]string // those of env; prepare sets it
	inputDir  string            // where the input is in the sandbox; prepare chooses it
}

func (f *execFlags) add(c *cobra.Command) {
	c.Flags().BoolVarP(&f.feed, "interactive", "i", false, "give the command this standard input")
	c.Flags().BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal of its own")
	f.addTimeout(c)
	// Flags after the sandbox or the image are the command's.
	c.Flags().SetInterspersed(false)
}

func (f *execFlags) addTimeout(c *cobra.Command) {
	command.AddDuration(c.Flags(), &f.timeout, "timeout", "", 0,
		"interrupt the command after this long, such as 90s (default: never)")
}

// addPlace adds the flags for where a command runs.
func (f *execFlags) addPlace(c *cobra.Command) {
	c.Flags().StringVar(&f.session, "session", "", "run in the persistent shell `NAME` (default: in none)")
	c.Flags().StringArrayVarP(&f.env, "env", "e", nil, "set a variable, `NAME=VALUE`, or NAME for its value here")
	c.Flags().StringVarP(&f.workDir, "workdir", "w", "", "run in this `DIRECTORY` of the sandbox")
}

// splitCommand splits WHAT [--] COMMAND [ARGUMENT...]. Flags end at WHAT, so the "--" is
// needed only before a command that begins with a dash, which is taken for a misplaced
// flag otherwise. If optional, there is a WHAT only where a "--" follows it.
func splitCommand(c *cobra.Command, args []string, optional bool) (what string, words []string, err error) {
	words = args
	if len(args) > 0 && !(optional && (len(args) == 1 || args[1] != "--")) {
		what, words = args[0], args[1:]
		if len(words) > 0 && words[0] != "--" && strings.HasPrefix(words[0], "-") {
			return "", nil, fmt.Errorf("flag %s must come before %q: %s", words[0], what, c.UseLine())
		}
	}
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	return what, words, nil
}

func missingCommand(c *cobra.Command) error {
	return fmt.Errorf("the command to run is missing: %s", c.UseLine())
}

// prepare checks the variables, and chooses where the input is put.
func (f *execFlags) prepare(getenv func(string) string) error {
	f.variables = map[string]string{}
	for _, word := range f.env {
		if err := platform.AddVariable(word, getenv, f.variables); err != nil {
			return fmt.Errorf("--env: %w", err)
		}
	}
	if f.user != "" && f.session != "" {
		return errors.New("--user: a persistent shell keeps the user of its sandbox: leave --session out")
	}
	for _, name := range slices.Sorted(maps.Keys(f.variables)) {
		if !variableName.MatchString(name) {
			return fmt.Errorf("--env: %q is not the name of a variable", name)
		}
	}
	if f.feed {
		f.inputDir = "/tmp/.actiond-" + rand.Text()
	}
	return nil
}

// line is the command as a line for a persistent shell, which runs it as it is: no word
// of it means anything to the shell.
func (f *execFlags) line(words []string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(f.variables)) {
		b.WriteString(name + "=" + shellquote.Word(f.variables[name]) + " ")
	}
	for i, word := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(shellquote.Word(word))
	}
	if !f.feed {
		b.WriteString(" </dev/null")
	}
	line := b.String()
	if f.workDir != "" {
		line = "(cd -- " + shellquote.Word(f.workDir) + " && " + line + ")"
	}
	if f.feed { // around all else: a failure must not leave the input behind
		line = "{ rm -rf -- " + f.inputDir + "; " + line + "; } <" + f.inputDir + "/" + inputName
	}
	return line
}

// perform runs a command in a sandbox, shows its output, and returns its exit code
// as a [command.ExitError] unless that is 0.
func (p *program) perform(ctx context.Context, s *sandbox.Sandbox, words []string, opts execFlags, input *spool) error {
	name, id, container := strings.Cut(s.User, ":")
	if opts.user != "" && container && !s.AllowRoot && opts.user != name && opts.user != id {
		return fmt.Errorf("sandbox %s was not created with --allow-root, so no command runs as another user in it: 'runtimectl create --allow-root' makes one", s.Name)
	}
	c, err := platform.Client(s)
	if err != nil {
		return err
	}
	defer c.Close()
	if input != nil {
		if err := input.send(ctx, c, opts.inputDir); err != nil {
			return err
		}
	}
	stream := p.newStream(c, random.UUID7())
	stream.feed, stream.timeout = opts.feed, opts.timeout
	if opts.tty {
		stream.tty = p.newTerminal(opts.feed, func(rows, cols int) error {
			return c.Resize(ctx, stream.id, api.TTY{Rows: rows, Cols: cols})
		})
	}
	request := opts.request(stream.id, words, stream.tty)
	if opts.detach {
		id, err := c.Start(ctx, request)
		if err == nil {
			_, err = fmt.Fprintln(p.Stdout, id)
		}
		return err
	}
	o, err := stream.run(ctx, request)
	if opts.changes && err == nil {
		p.printChanges(ctx, c, stream.id)
	}
	if run, ok := o.(api.RunObservation); input != nil && err == nil && (!ok || run.Metadata.ExitCode < 0) {
		// The command may not have begun, and then did not remove its input. The command's own end is the one to report.
		_ = helper(context.WithoutCancel(ctx), c, "rm", "-rf", "--", opts.inputDir)
	}
	return stream.end(ctx, s.Name, opts, o, err)
}

// request is the action that runs a command: a program of its own, on the terminal if that is not nil,
// or a command of a session.
func (f *execFlags) request(id string, words []string, tty *ownTerminal) api.Request {
	request := api.Request{Key: id, Session: f.session}
	if f.changes {
		request.Changes = api.ChangesFacts
	}
	if f.session != "" {
		request.Action = api.RunAction{Command: f.line(words), Blocking: true}
		if f.timeout > 0 {
			request.Timeout = new(f.timeout.Seconds())
		}
		return request
	}
	a := api.ExecAction{Argv: words, Cwd: api.Directory(f.workDir), Env: f.variables, User: f.user}
	if f.feed || f.tty { // a terminal is its input too, also where nothing is typed
		a.Stdin = api.StdinStream
	}
	if tty != nil {
		a.TTY, a.Env = new(tty.size.tty()), withTERM(a.Env)
	}
	switch {
	case f.detach:
		a.KillAfter = f.timeout.Seconds()
	case f.timeout > 0:
		request.Timeout = new((f.timeout + cancelLimit + cutLimit).Seconds()) // where it cannot be killed
	}
	request.Action = a
	return request
}

// end returns how a command ended whose stream ended with o and err, as the end of exec in the sandbox name.
func (s *actionStream) end(ctx context.Context, name string, opts execFlags, o api.Observation, err error) error {
	run, isRun := o.(api.RunObservation)
	program, isProgram := o.(api.ExecObservation)
	ended := isRun || isProgram
	hint := fmt.Sprintf("'runtimectl action follow %[1]s %[2]s' shows what it prints, 'runtimectl action cancel %[1]s %[2]s' ends it", name, s.id)
	why := fmt.Sprintf("the command timed out after %v", opts.timeout)
	if denied := api.NetworkOf(o); denied != nil {
		_, _ = fmt.Fprintln(s.p.Stderr, output.Clean(denied.Text()))
	}
	switch {
	case errors.Is(err, errLeft) && opts.ephemeral:
		_, _ = fmt.Fprintln(s.p.Stderr, "left; the command ends with its sandbox")
		return nil
	case errors.Is(err, errLeft):
		_, _ = fmt.Fprintf(s.p.Stderr, "left; the command goes on: 'runtimectl action follow %s %s'\n", name, s.id)
		return nil
	case errors.Is(err, errUnreached) && !opts.ephemeral:
		return &command.ExitError{Code: command.ExitInterrupted, Why: "interrupted; the command may go on: " + hint}
	case ctx.Err() != nil && (err != nil || !ended): // it may have been cancelled before its start
		return &command.ExitError{Code: command.ExitInterrupted, Why: "interrupted"}
	case errors.Is(err, client.ErrCut) && !opts.ephemeral:
		return fmt.Errorf("%w\nThe command may go on: %s", err, hint)
	case err != nil:
		return err
	case !ended:
		return fmt.Errorf("the command was not run: %s", output.Clean(api.Content(o)))
	case isProgram && channel.Closed(s.late) && program.EndedBy != nil && *program.EndedBy == byCancel:
		return &command.ExitError{Code: command.ExitTimeout, Why: why}
	case isProgram:
		return programEnd(program, why)
	}
	if _, code := api.OutcomeOf(run); opts.timeout > 0 && code == api.CodeTimedOut {
		pressCtrlC(ctx, s.c, opts.session)
		return &command.ExitError{Code: command.ExitTimeout, Why: why}
	}
	return runEnd(run)
}
