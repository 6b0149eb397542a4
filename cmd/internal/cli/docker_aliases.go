package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/actiond/actiond/cmd/internal/cli/platform"
	"github.com/actiond/actiond/sandbox"
)

// dockerHints are commands for words of docker, kubectl and others that mean something
// else here, or nothing.
var dockerHints = map[string]string{
	"upload":   "use 'runtimectl cp FILE SANDBOX:PATH'",
	"download": "use 'runtimectl cp SANDBOX:PATH FILE'",
	"system":   "'runtimectl doctor' says what this host has and lacks, 'runtimectl prune' removes what is left over",
	"config":   "it has no configuration file: --on, --state-dir and the variables ACTIOND_ON and ACTIOND_STATE_DIR choose the sandboxes",
	"login":    "it has no accounts; 'docker login' is for the engine's registries",
	"delete":   "use 'runtimectl rm'",
	"destroy":  "use 'runtimectl rm'",
	"remove":   "use 'runtimectl rm'",
	"get":      "use 'runtimectl ls' for the sandboxes, 'runtimectl cat' or 'cp' for files",
	"describe": "use 'runtimectl inspect'",
	"shell":    "use 'runtimectl sh'",
	"new":      "use 'runtimectl create'",
	"log":      "use 'runtimectl logs' for what a sandbox printed, 'runtimectl changes' for what changed in its workspace",
	"status":   "use 'runtimectl ls', or 'inspect' for one sandbox",
	"list":     "use 'runtimectl ls'",
	"snapshot": "a sandbox cannot be saved yet; copy files out with 'runtimectl cp'",
	"fork":     "a sandbox cannot be copied yet; copy files with 'runtimectl cp'",
	"top":      "what sandboxes use is in 'runtimectl stats'; for their processes, 'runtimectl exec SANDBOX -- ps aux'",
	"images":   "images are the engine's: 'docker images'; 'runtimectl image' builds one",
	"pull":     "images are the engine's: 'docker pull', or 'runtimectl create --pull always'",
	"build":    "images are the engine's: 'docker build'; any of them will do",
	"restart":  "use 'runtimectl stop' and 'runtimectl start'",
	"update":   "use 'runtimectl renew' for another deadline; other limits stay as they were made",
	"commit":   "a sandbox becomes no image; copy files out with 'runtimectl cp'",
	"export":   "'runtimectl cp SANDBOX:DIRECTORY -' writes an archive of files",
	"info":     "'runtimectl doctor' says what this host has and lacks",
	"push":     "images are the engine's: 'docker push'",
	"rename":   "a sandbox keeps the name of 'runtimectl create --name'",
	"rmi":      "images are the engine's: 'docker rmi'",
	"tag":      "images are the engine's: 'docker tag'; 'runtimectl image --tag' names the one it builds",
	"volume":   "'runtimectl create --volume' mounts a directory of this host",
}

// dockerFlagHints are the same for flags of 'docker run'.
var dockerFlagHints = map[string]string{
	"d": staysHint, "detach": staysHint, "p": portHint, "publish": portHint,
	"privileged": "a sandbox has no power over its host; 'runtimectl create --allow-root' lets programs be root's inside",
	"entrypoint": "what an image starts by itself is not started; 'runtimectl exec' runs a command",
}

const (
	staysHint = "'runtimectl create' makes a sandbox that stays"
	portHint  = "'runtimectl port-forward' reaches a port of a sandbox"
)

// addDockerAliases accepts words of docker that mean the same here. Help does not
// show it.
func addDockerAliases(root *cobra.Command) {
	for _, c := range root.Commands() {
		switch c.Name() {
		case "sh":
			c.Aliases = append(c.Aliases, "attach")
		case "rm":
			addWithoutEffect(c, "force", "f", "sandboxes that run are removed as well")
		case "cp":
			addWithoutEffect(c, "recursive", "r", "directories are copied with all that is in them in any case")
			addWithoutEffect(c, "archive", "a", "owners are those of the destination in any case")
		case "run":
			addWithoutEffect(c, "rm", "", "its sandbox is removed in any case")
		case "ls":
			addWithoutEffect(c, "all", "a", "all are listed in any case")
		}
	}
}

func addWithoutEffect(c *cobra.Command, name, short, usage string) {
	c.Flags().BoolP(name, short, true, usage)
	_ = c.Flags().MarkHidden(name) // the flag is there
}

// kill is stop without grace, as docker has it.
func (p *program) kill() *cobra.Command {
	c := p.Each(&cobra.Command{
		Use:    "kill SANDBOX...",
		Short:  "Stop sandboxes at once and keep their files",
		Hidden: true,
		Long: `Kill ends what runs in sandboxes without giving it time, and keeps their files.
It is 'stop --time 0', and prints the ids of those that are stopped.`,
		Example: `  runtimectl kill build`,
	}, platform.Running, func(ctx context.Context, driver sandbox.Driver, s *sandbox.Sandbox) error {
		return sandbox.Stop(ctx, driver, s, 0)
	})
	return c
}

// flagError names the flags that look like an unknown one.
func flagError(c *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	name := unknown.GetSpecifiedName()
	if hint := dockerFlagHints[name]; hint != "" && (c.Name() == "run" || c.Name() == "create") {
		return fmt.Errorf("%w: %s", err, hint)
	}
	if unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	flags := &cobra.Command{SuggestionsMinimumDistance: 2} // the library compares names of commands
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	})
	similar := flags.SuggestionsFor(name)
	if len(similar) == 0 {
		return err
	}
	return fmt.Errorf("%w; did you mean --%s?", err, strings.Join(similar, " or --"))
}
