package platform

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// AddOn gives root, and every command below it, the flags that choose the platform.
func (p *Platform) AddOn(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&p.on, "on", "", "use the sandboxes of `PLATFORM`: docker, kubernetes[:CONTEXT[/NAMESPACE]],\nor local, which isolates nothing (default: $"+onVariable+" or docker)")
	_ = root.RegisterFlagCompletionFunc("on", cobra.FixedCompletions([]cobra.Completion{"docker", "kubernetes", "local"}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
	flags.StringVar(&p.stateDir, "state-dir", "", "keep keys and sockets in this `DIRECTORY` (default: $"+stateDirVariable+", else\n/var/lib/actiond for root, $XDG_STATE_HOME/actiond or ~/.local/state/actiond for others)")
	_ = root.MarkPersistentFlagDirname("state-dir") // the flag is there
}

const (
	onVariable       = "ACTIOND_ON"        // --on overrides it
	stateDirVariable = "ACTIOND_STATE_DIR" // --state-dir overrides it
)

// serverImageVariable is the variable that --server-image overrides.
const serverImageVariable = "ACTIOND_SERVER_IMAGE"

// notOnKubernetes are the flags that Pods cannot honour. Like onlyOnKubernetes and needEngine, it is
// known without a driver, for the help; a test compares them with what the drivers refuse.
var notOnKubernetes = []string{"pids-limit", "nofile", "read-only", "security-opt", "state-dir", "uid-range", "server"}

// onlyOnKubernetes are the flags that only Pods can honour.
var onlyOnKubernetes = []string{"server-image", "image-pull-secret", "node-selector", "toleration", "userns", "server-volume"}

// HideForeign takes flags that are for other platforms than the command line names out of
// the help and the completion of all commands.
func (p *Platform) HideForeign(c *cobra.Command, args []string) {
	foreign := onlyOnKubernetes
	if platform, _, _ := strings.Cut(p.named(args), ":"); platform == "kubernetes" {
		foreign = notOnKubernetes
	}
	for _, sub := range c.Commands() {
		p.HideForeign(sub, args)
		for _, name := range foreign {
			if sub.Flags().Lookup(name) != nil {
				_ = sub.Flags().MarkHidden(name) // the flag is there
			}
		}
	}
}

// named returns the platform that a command line names before it is parsed.
func (p *Platform) named(args []string) string {
	on := p.Getenv(onVariable)
	for i, word := range args {
		switch value, is := strings.CutPrefix(word, "--on="); {
		case word == "--":
			return on
		case is:
			on = value
		case word == "--on" && i+1 < len(args):
			on = args[i+1]
		}
	}
	return on
}

// Choose finds out where the sandboxes are from the flags and the variable, and refuses
// flags of the command that are for other platforms.
func (p *Platform) Choose(command string, flags *pflag.FlagSet) error {
	on, from := p.on, "--on"
	if on == "" {
		on, from = p.Getenv(onVariable), onVariable
	}
	platform, cluster, named := strings.Cut(on, ":")
	onKubernetes := platform == "kubernetes" && (cluster != "" || !named)
	switch {
	case !onKubernetes:
		for _, name := range onlyOnKubernetes {
			if flags.Changed(name) {
				return fmt.Errorf("--%s is for sandboxes on Kubernetes: leave it out, or use --on kubernetes", name)
			}
		}
	default:
		p.Kubernetes, p.cluster = true, cluster
		for _, name := range notOnKubernetes {
			if flags.Changed(name) && (name != "state-dir" || command != "serve") { // serve keeps its key there
				return fmt.Errorf("--%s cannot be honoured on Kubernetes: leave it out with --on %s", name, on)
			}
		}
	}
	switch {
	case onKubernetes, on == "", on == "docker":
		return nil
	case on == "local":
		p.Local = true
		return nil
	}
	return fmt.Errorf("%s %q: must be docker, kubernetes, kubernetes:CONTEXT, kubernetes:CONTEXT/NAMESPACE or local", from,
		on)
}
