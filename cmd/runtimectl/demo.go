package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// demoOptions are the flags of demo.
type demoOptions struct {
	url, image    string
	keep, noColor bool
	output        *format
}

func (p *program) demo() *cobra.Command {
	var opts demoOptions
	c := &cobra.Command{
		Use:   "demo",
		Short: "Play a real session against a real server",
		Long: `Demo makes a sandbox and plays a session in it through HTTP: it writes a program
and runs it, breaks a real Go module, watches its tests fail and undoes the
damage, and shows what a time limit does. Every step says what must come of it
and is checked. At the end nothing is left.

The sandbox is a container of --image, or of the first of these images that is on
the host or can be pulled: ` + strings.Join(demoImages, ", ") + `.
Where there is no engine or no image, which is said, and with --local, a server
is started on a fresh temporary directory of this machine.

Without python3 or Go the steps that need them are skipped, which is said. The
exit code is 1 when a step did not do what it must.

With --output json there is one JSON object per step on standard output.`,
		Example: `  runtimectl demo
  runtimectl demo --image golang:1.26
  runtimectl demo --output json | jq -c '[.step, .status, .ms]'
  SESSION_API_KEY=secret runtimectl demo --url http://127.0.0.1:8000`,
		Args: noArgs,
		PreRunE: func(*cobra.Command, []string) error {
			switch {
			case p.place.server != "" && opts.url != "":
				return errors.New("--server starts a server and --url uses one that runs: give one of them")
			case opts.image != "" && (p.place.local || opts.url != ""):
				return errors.New("--image is for a container, which --local and --url do without")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return p.playDemo(cmd.Context(), opts) },
	}
	flags := c.Flags()
	p.addPlace(c)
	p.addServer(c)
	flags.StringVar(&opts.image, "image", "", "play in a container of this `IMAGE`")
	flags.StringVar(&opts.url, "url", "", "use the server at this `URL`, http://HOST:PORT or unix:///PATH,\nwith the key in "+keyVariable)
	flags.BoolVar(&opts.keep, "keep", false, "keep the sandbox, or the directory, with what was made in it")
	flags.BoolVar(&opts.noColor, "no-color", false, "print no colours")
	opts.output = addFormat(c, "text", "json")
	_ = c.RegisterFlagCompletionFunc("url", cobra.NoFileCompletions) // the flag is there
	return c
}

// playDemo plays the story and takes down what it set up, whatever happens.
func (p *program) playDemo(ctx context.Context, opts demoOptions) (err error) {
	begun := time.Now()
	st, err := p.setUp(ctx, opts)
	if err != nil {
		return err
	}
	text := p.textReport(opts, st.dir)
	var report reporter = text
	if opts.output.value == "json" {
		report = jsonReport{p.stdout}
	}
	play := player{client: st.client, session: st.session, dir: st.dir, explain: st.explain, report: report}
	// What was set up is taken down also when ctx is over.
	defer func() {
		ctx := context.WithoutCancel(ctx)
		play.interrupt(ctx)
		err = errors.Join(err, st.strike(ctx))
	}()
	if _, err := fmt.Fprintln(text.out, st.about); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	played := play.play(ctx, story(st.dir, findModule(ctx)))
	if played != nil && !errors.Is(played, errFailed) {
		return played
	}
	if err := text.summary(&play.tally, time.Since(begun), st.again); err != nil {
		return fmt.Errorf("writing the summary: %w", err)
	}
	return played
}

// textReport returns what shows the steps to a person, and what stands around
// them: a note where the steps themselves are JSON.
func (p *program) textReport(opts demoOptions, dir string) textReport {
	if opts.output.value == "json" {
		return textReport{out: p.stderr, dir: dir}
	}
	style, plain := p.style(opts.noColor)
	if plain != "" {
		_, _ = fmt.Fprintf(p.stderr, "note: no colours, because %s\n", plain)
	}
	return textReport{out: p.stdout, style: style, dir: dir}
}
