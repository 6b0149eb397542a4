package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/actiond/actiond/cmd/internal/cli/command"
	"github.com/actiond/actiond/cmd/internal/cli/output"
)

// commands is the table of everything this program can do, in the groups of help. The
// library adds completion and help.
func (p *program) commands() []commandGroup {
	return []commandGroup{
		{"Begin with", []*cobra.Command{p.create(), p.exec(), p.sh(), p.cp(), p.ls(), p.rm()}},
		{"Make and end sandboxes", []*cobra.Command{
			p.runCommand(), p.stop(), p.start(), p.pause(), p.resume(), p.renew(), p.kill(),
		}},
		{"Work in a sandbox", []*cobra.Command{
			p.cat(), p.edit(), p.act(), p.action(), p.tool(), p.mcp(), p.portForward(),
		}},
		{"Look at changes, and take them back", []*cobra.Command{
			p.changes(), p.diff(), p.undo(), p.checkpoint(), p.restore(), p.attempt(), p.bisect(),
		}},
		{"Look at sandboxes", []*cobra.Command{p.inspect(), p.network(), p.url(), p.logs(), p.ports(), p.stats(), p.events()}},
		{"Operate a host or cluster", []*cobra.Command{p.serve(), p.pool(), p.prune()}},
		{setUp, []*cobra.Command{p.doctor(), p.demo(), p.image(), p.manifests(), p.version()}},
	}
}

// commandGroup are commands that help shows together.
type commandGroup struct {
	title    string
	commands []*cobra.Command
}

// setUp is the title of the group that completion and help are in.
const setUp = "Set up"

// execute finds the command and runs it.
func (p *program) execute(ctx context.Context, args []string) (*cobra.Command, error) {
	root := p.root() //nolint:contextcheck // a command takes its context from the library
	p.HideForeign(root, args)
	begun := false
	p.prepare(root, &begun)
	root.SetArgs(args)
	called, err := root.ExecuteContextC(ctx)
	if err != nil && !begun {
		// A misspelt command is found to lack its flags first.
		if above, rest, _ := root.Find(args); above.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			err = noSuchCommand(above, rest)
		}
		return called, command.Usage(called, err)
	}
	return called, err
}

// inOrder lets help show commands in the order of the table.
var inOrder = sync.OnceFunc(func() { cobra.EnableCommandSorting = false })

func (p *program) root() *cobra.Command {
	inOrder()
	root := &cobra.Command{
		Use:   "runtimectl",
		Short: "Drive the sandboxes in which agents act",
		Long: `Runtimectl drives the sandboxes in which agents act.

'runtimectl demo' shows what a sandbox does: it plays a short session against a
real server.`,
		Example: `  runtimectl create --name build debian:bookworm
  runtimectl exec build -- sh -c 'echo hello >greeting'
  runtimectl cp build:greeting .
  runtimectl rm build`,
		Version:       p.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate(p.versionLine())
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", helpWidth)))
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	p.AddOn(root)
	for _, group := range p.commands() {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title + ":"})
		for _, c := range group.commands {
			c.GroupID = group.title
			root.AddCommand(c)
		}
	}
	for _, c := range p.actionCommands("actions") { // as they were called before 'action'
		c.Hidden = true
		root.AddCommand(c)
	}
	root.SetHelpCommandGroupID(setUp)
	root.SetCompletionCommandGroupID(setUp)
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			c.Args = helpTopic
			c.Short, c.Long, c.Example = "Say how a command is used", "Help says how a command is used, as its flag --help does.", "  runtimectl help exec"
		}
	}
	root.SetFlagErrorFunc(flagError)
	addDockerAliases(root)
	return root
}

// helpTopic refuses words that name no command.
func helpTopic(c *cobra.Command, args []string) error {
	if above, rest, _ := c.Root().Find(args); above.HasSubCommands() && len(rest) > 0 {
		return noSuchCommand(above, rest)
	}
	return nil
}

// prepare makes c, and every command below it, set begun before it begins: an
// error before that is one of the command line. A command that only has
// subcommands refuses other words.
func (p *program) prepare(c *cobra.Command, begun *bool) {
	if c.Flags().Lookup("session") != nil {
		_ = c.RegisterFlagCompletionFunc("session", p.CompleteSessions) // the flag is there
	}
	completeNothing(c)
	c.Long = rewrap(c.Long)
	c.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "\n", " ") }) // the library breaks lines
	if !c.Runnable() {
		c.Args = noSuchCommand
		c.RunE = func(*cobra.Command, []string) error { return c.Help() }
	}
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			if err := notNegative(cmd.Flags()); err != nil {
				return err
			}
			if cmd.Flags().Lookup("on") != nil {
				if err := p.Choose(cmd.Name(), cmd.Flags()); err != nil {
					return err
				}
			}
			*begun = true
			if cmd.Annotations[command.NoSandboxes] == "" {
				p.Replace()
			}
			return run(cmd, args)
		}
	}
	for _, sub := range c.Commands() {
		p.prepare(sub, begun)
	}
}

// helpWidth is how many columns help takes at most.
const helpWidth = 80

// rewrap breaks the lines of paragraphs anew. Indented lines stay.
func rewrap(text string) string {
	var paragraphs []string
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if strings.HasPrefix(paragraph, " ") {
			paragraphs = append(paragraphs, paragraph)
			continue
		}
		var b strings.Builder
		column := 0
		for word := range strings.FieldsSeq(paragraph) {
			width := output.TextWidth(word)
			switch {
			case column == 0:
			case column+1+width > helpWidth:
				b.WriteByte('\n')
				column = 0
			default:
				b.WriteByte(' ')
				column++
			}
			b.WriteString(word)
			column += width
		}
		paragraphs = append(paragraphs, b.String())
	}
	return strings.Join(paragraphs, "\n\n")
}

// notNegative refuses numbers and durations below zero: no flag has a use for
// them, and to take one for none would be a surprise.
func notNegative(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		kind := f.Value.Type()
		if (kind == "int" || kind == "int64" || kind == command.DurationType) && strings.HasPrefix(f.Value.String(), "-") {
			err = fmt.Errorf("--%s %s: must not be negative", f.Name, f.Value)
		}
	})
	return err
}

// noSuchCommand refuses words that are no command, and names those that look
// like them.
func noSuchCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("there is no command %q", args[0])
	if hint := dockerHints[args[0]]; hint != "" && !c.HasParent() {
		return errors.New(text + ": " + hint)
	}
	c.SuggestionsMinimumDistance = min(2, len(args[0])/2) // "tag" is not like "cat"
	if similar := c.SuggestionsFor(args[0]); len(similar) > 0 {
		text += "; did you mean " + strings.Join(similar, " or ") + "?"
	}
	return errors.New(text)
}

// fileFlags are those whose value is a file of this machine, or begins with one.
var fileFlags = []string{"env-file", "file", "key-file", "network-policy", "server", "volume"}

// completeNothing keeps the shell from offering files for the values of flags that
// name no file and have no completion of their own.
func completeNothing(c *cobra.Command) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		_, known := c.GetFlagCompletionFunc(f.Name)
		if !known && f.Annotations == nil && f.NoOptDefVal == "" && !slices.Contains(fileFlags, f.Name) {
			_ = c.RegisterFlagCompletionFunc(f.Name, cobra.NoFileCompletions) // the flag is there
		}
	})
}
