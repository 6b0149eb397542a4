package cli

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/actiond/actiond/api"
	"github.com/actiond/actiond/api/client"
	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

const (
	// demoTTL ends the sandbox of a demo that was killed.
	demoTTL = 30 * time.Minute
	// unfinished is the exit code of a command that runs on after its answer.
	unfinished = -1
)

// demoProject is the project that the demo breaks. Any shell runs its tests.
//
//go:embed demoproject
var demoProject embed.FS

// demoImages are the images in which the demo runs, in order of preference: the
// last one is pulled if it is missing.
var demoImages = []string{platform.ImageTag, "actiond-base:bookworm", "debian:bookworm-slim"}

// step is one request and its expected result.
type step struct {
	say, show string     // for people; show is by default the command of a run
	undoes    bool       // it needs a server that can take changes back
	action    api.Action // nil: upload the project, unless there is work
	work      func(context.Context) (api.Observation, error)
	seconds   float64  // hard timeout; 0 for none
	exit      int      // expected exit code of a run, or unfinished
	holds     []string // texts that the content or the diff must have
}

// story returns the steps of the demo. dir is the absolute path of the shell's
// current directory, and undo takes the last change back.
func story(dir string, undo func(context.Context) (api.Observation, error)) []step {
	const right, wrong = "($1 - 32)", "($1 + 32)"
	greeter, formula := path.Join(dir, "greeter.sh"), path.Join(dir, "project", "temperature.sh")
	lines := "#!/bin/sh\nprintf 'Enter your name: '; read -r name; echo \"Hello, $name!\""
	run := func(command string) api.Action { return api.RunAction{Command: command} }
	edit := func(command, old, text string) api.Action {
		return api.EditAction{Command: command, Path: formula, OldStr: new(old), NewStr: new(text)}
	}
	return []step{
		{say: "Create an empty file.", show: "create greeter.sh", action: api.EditAction{Command: "create", Path: greeter, FileText: new("")}, holds: []string{"File created successfully"}},
		{say: "Write its two lines.", show: "insert greeter.sh", action: api.EditAction{Command: "insert", Path: greeter, InsertLine: new(api.LineNumber("0")), NewStr: new(lines)}, holds: []string{"\n+#!/bin/sh", "\n+printf 'Enter"}},
		{say: "Make it executable.", action: run("chmod +x greeter.sh")},
		{say: "Run it and answer its question.", action: run("echo 'TestUser' | ./greeter.sh"), holds: []string{"Enter your name: Hello, TestUser!"}},

		{say: "Upload a small project with tests.", show: "upload project", holds: []string{"temperature.sh", "test.sh"}},
		{say: "Go there. The shell remembers it.", action: run("cd project")},
		{say: "View how it converts temperatures.", show: "view project/temperature.sh", action: api.ReadAction{Path: formula, ImplSource: "oh_aci", End: -1}, holds: []string{right}},
		{say: "Break it.", show: "str_replace project/temperature.sh", action: edit("str_replace", right, wrong), holds: []string{"\n-\techo $(( " + right, "\n+\techo $(( " + wrong}},
		{say: "Its tests fail.", action: run("sh test.sh"), exit: 1, holds: []string{"not ok - 32 F: got 35 C, want 0 C"}},
		{say: "Undo.", show: "undo_edit project/temperature.sh", action: api.EditAction{Command: "undo_edit", Path: formula}, holds: []string{"\n-\techo $(( " + wrong, "\n+\techo $(( " + right}},
		{say: "Its tests pass.", action: run("sh test.sh"), holds: []string{"ok - 212 F are 100 C"}},

		{say: "Make a mistake: a command deletes the whole project.", undoes: true, action: run("rm -rf *")},
		{say: "Take it back. The server knows what every command changed, without git.", show: "runtimectl undo", undoes: true, work: undo, holds: []string{"created"}},
		{say: "Its tests pass again.", undoes: true, action: run("sh test.sh"), holds: []string{"ok - 212 F are 100 C"}},

		{say: "Start a build of 1.5 seconds and wait 0.3 at most.", action: run("echo compiling; sleep 1.5; echo linked"), seconds: 0.3, exit: unfinished, holds: []string{"compiling"}},
		{say: "Ask for the rest with an empty command.", show: `run ""`, action: run(""), holds: []string{"linked"}},
		{say: "Start a command that takes ten minutes.", action: run("sleep 600"), seconds: 0.3, exit: unfinished},
		{say: "Press Ctrl-C.", show: "keys C-c", action: api.RunAction{Command: "C-c", IsInput: true}, exit: 130},
	}
}

func (p *program) demo() *cobra.Command {
	var image string
	var keep bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "Play a real session in a sandbox",
		Long: `Demo makes a sandbox and plays a session in it: it writes a program and runs it,
breaks a project, watches its tests fail and undoes the damage, deletes the whole
project and takes that back, and shows what a time limit does. Where a Docker engine can keep network policies, a second
sandbox asks for a page that its policy allows and for one that it denies. The
result of every step is checked. At the end the sandboxes are removed.

The sandbox is a container of --image, or of the first of these images that is on
the host or can be pulled: ` + strings.Join(demoImages, ", ") + `.
If no container can be made, and with --on local, it is a process of this machine.

The exit code is 1 when a step failed.`,
		Example: `  runtimectl demo
  runtimectl demo --image golang:1.26`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.playDemo(cmd.Context(), image, keep) },
	}
	p.AddServer(c)
	c.Flags().StringVar(&image, "image", "", "play in a container of this `IMAGE`")
	c.Flags().BoolVar(&keep, "keep", false, "keep the sandbox, for half an hour at most")
	return c
}

// playDemo makes a sandbox, plays the story in it, and removes it.
func (p *program) playDemo(ctx context.Context, image string, keep bool) (err error) {
	made := false
	in := func(image string, pull sandbox.Pull) error {
		spec := sandbox.Spec{Image: image, TTL: demoTTL, Labels: map[string]string{"runtimectl": "demo"}, Pull: pull}
		return p.Make(ctx, spec, "", func(driver sandbox.Driver, s *sandbox.Sandbox) (err error) {
			made = true
			if keep {
				_, _ = fmt.Fprintf(p.Stderr, "note: sandbox %s is kept\n", s.ID)
			} else {
				defer func() { err = p.RemoveAfter(ctx, driver, s, err) }()
			}
			return p.playIn(ctx, driver, s)
		})
	}
	if p.Local || p.Kubernetes || image != "" {
		return in(image, "")
	}
	for i, image := range demoImages {
		pull := sandbox.PullNever
		if i == len(demoImages)-1 {
			pull = sandbox.PullMissing
		}
		if err = in(image, pull); made || !errors.Is(err, sandbox.ErrNoImage) {
			break
		}
	}
	if made || !errors.Is(err, sandbox.ErrUnknown) && !errors.Is(err, sandbox.ErrNoImage) {
		return err
	}
	_, _ = fmt.Fprintf(p.Stderr, "note: playing without a container: %s\n", errorText(err))
	p.Local = true
	return in("", "")
}

// playIn plays the story in a sandbox made for it.
func (p *program) playIn(ctx context.Context, driver sandbox.Driver, s *sandbox.Sandbox) error {
	begun := time.Now()
	c, err := platform.Client(s)
	if err != nil {
		return err
	}
	style, plain := p.Style()
	if plain != "" {
		_, _ = fmt.Fprintf(p.Stderr, "note: no colours, because %s\n", plain)
	}
	d := demo{client: c, out: p.Stdout, style: style}
	defer func() { d.client.Close() }()
	about := "a process of this machine"
	if !p.Local {
		about = "a container of " + s.Image
	}
	d.print("Playing in sandbox %s, %s.\n", s.ID, about)
	const probe = "pwd -P; for name in curl wget bash; do command -v $name >/dev/null && echo $name; done"
	o, err := d.do(ctx, step{action: api.RunAction{Command: probe, Blocking: true}})
	if err != nil {
		return fmt.Errorf("looking for programs in the sandbox: %w", err)
	}
	found := strings.Split(api.Content(o), "\n")
	d.dir = found[0]
	_, d.cannot = c.Checkpoint(ctx, api.CheckpointRequest{Name: "demo"})
	for _, s := range story(d.dir, d.undo) {
		if err := d.play(ctx, s); err != nil {
			return err
		}
	}
	if err := p.playNetwork(ctx, &d, driver, s, found); err != nil {
		return err
	}
	d.print("\n%d steps: %d ok, %d failed, %d skipped; %.1f s in all\n",
		d.ok+d.failed+d.skipped, d.ok, d.failed, d.skipped, time.Since(begun).Seconds())
	if d.failure != nil {
		return fmt.Errorf("the demo failed: %w", d.failure)
	}
	create, name := "create --name mine "+cmp.Or(s.Image, "debian"), "mine"
	if p.Local {
		create, name = "create --on local --name mine", "--on local mine"
	}
	d.print("\nNow try:\n  runtimectl %s\n  runtimectl sh %s\n  runtimectl undo %s\n", create, name, name)
	return d.written
}

// demo plays steps in a sandbox and prints them. It owns the client.
type demo struct {
	client  *client.Client
	dir     string // in the sandbox
	cannot  error  // undo
	out     io.Writer
	style   output.Style
	written error // of the first write that failed

	ok, failed, skipped int
	failure             error // of the step that failed
}

// print prints unless a write failed before.
func (d *demo) print(format string, args ...any) {
	if d.written == nil {
		_, d.written = fmt.Fprintf(d.out, format, args...)
	}
}

// line prints a line below a step, without control characters and cut to the
// terminal.
func (d *demo) line(color, text string) {
	d.print("    %s\n", d.style.Paint(color, output.Cut(output.Clean(text), max(d.style.Width-4, 0))))
}

// use plays the next steps in another sandbox.
func (d *demo) use(c *client.Client) {
	d.client.Close()
	d.client = c
}

// play plays a step and prints it. An error ends the demo: the server cannot be
// reached, or nothing can be printed.
func (d *demo) play(ctx context.Context, s step) error {
	number := d.ok + d.failed + d.skipped + 1
	run, _ := s.action.(api.RunAction)
	d.print("\n%s  %s\n", d.style.Paint(output.Bold, fmt.Sprintf("%2d", number)), s.say)
	d.line(output.Cyan, "> "+cmp.Or(s.show, run.Command))
	why := ""
	if s.undoes && d.cannot != nil {
		why = d.cannot.Error()
	}
	if d.failure != nil {
		why = "an earlier step failed"
	}
	if why != "" {
		d.skipped++
		d.line(output.Yellow, "skipped: "+why)
		return d.written
	}
	begun := time.Now()
	o, err := d.do(ctx, s)
	took := fmt.Sprintf("%.1f ms", float64(time.Since(begun).Microseconds())/1000)
	if _, answered := errors.AsType[*client.StatusError](err); err != nil && !answered {
		return err
	}
	if err == nil {
		text, diff := api.Content(o), ""
		if edit, ok := o.(api.EditObservation); ok {
			diff = edit.Diff
		}
		d.output(text)
		d.output(diff)
		if denied := api.NetworkOf(o); denied != nil {
			d.output(denied.Text())
			text += "\n" + denied.Text()
		}
		err = s.check(o, text+"\n"+diff)
	}
	if err != nil {
		d.failed++
		d.failure = fmt.Errorf("step %d: %w", number, err)
		d.line(output.Red, "FAILED, "+took+": "+err.Error())
	} else {
		d.ok++
		d.line(output.Green, "ok, "+took)
	}
	return d.written
}

// do sends the action of a step, or uploads the project.
func (d *demo) do(ctx context.Context, s step) (api.Observation, error) {
	limit := time.Minute + time.Duration(s.seconds*float64(time.Second))
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	if s.work != nil {
		return s.work(ctx)
	}
	if s.action == nil {
		dir := path.Join(d.dir, "project")
		var packed bytes.Buffer
		files, err := fs.Sub(demoProject, "demoproject")
		if err != nil {
			return nil, err
		}
		w := zip.NewWriter(&packed)
		if err := errors.Join(w.AddFS(files), w.Close()); err != nil {
			return nil, err
		}
		if _, err := d.client.Upload(ctx, dir, "project.zip", &packed, true); err != nil {
			return nil, err
		}
		names, err := d.client.ListFiles(ctx, dir)
		return api.ReadObservation{Content: strings.Join(names, "\n")}, err
	}
	request := api.Request{Action: s.action}
	if s.seconds > 0 {
		request.Timeout = &s.seconds
	}
	o, err := d.client.Do(ctx, request)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return o, err
}

// undo takes back the last change, and names it.
func (d *demo) undo(ctx context.Context) (api.Observation, error) {
	restored, err := d.client.Restore(ctx, api.RestoreRequest{Last: true})
	var lines []string
	for _, path := range restored.Paths {
		lines = append(lines, path.Op+"  "+pathText(path))
	}
	if err == nil && restored.RefusedCount > 0 {
		err = errors.New(count(restored.RefusedCount, "path", "paths") + " could not be restored")
	}
	return api.ReadObservation{Content: strings.Join(lines, "\n")}, err
}

// check compares an answer with the expected one.
func (s step) check(o api.Observation, output string) error {
	if _, ok := s.action.(api.RunAction); ok {
		run, ok := o.(api.RunObservation)
		if !ok {
			return errors.New("the answer is an error")
		}
		if code := run.Metadata.ExitCode; code != s.exit {
			return fmt.Errorf("the exit code is %d instead of %d", code, s.exit)
		}
		if _, code := api.OutcomeOf(run); s.exit == unfinished && code != api.CodeTimedOut {
			return errors.New("the command was not started")
		}
	}
	for _, text := range s.holds {
		if !strings.Contains(output, text) {
			return fmt.Errorf("the output has no %q", text)
		}
	}
	return nil
}

// output prints both ends of a text that is not empty, with the lines of a diff in
// colour.
func (d *demo) output(text string) {
	if text == "" {
		return
	}
	head, left, tail := output.Shorten(strings.Split(strings.TrimRight(text, "\n"), "\n"), 12)
	cut := []string{fmt.Sprintf("(%d lines left out)", left)}[:min(left, 1)]
	diff := false
	for _, line := range slices.Concat(head, cut, tail) {
		diff = diff || strings.HasPrefix(line, "@@ ")
		color := output.Dim
		if diff && line != "" {
			color = map[byte]string{'-': output.Red, '+': output.Green}[line[0]]
		}
		d.line(color, "| "+strings.TrimSuffix(line, "\r"))
	}
}
