package platform

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// AddOn gives root, and every command below it, the flags that choose the platform.
func (p *Platform) AddOn(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.BoolVar(&p.Local, "local", false, "use processes of this machine instead of an engine's containers; isolates nothing")
	_ = flags.MarkHidden("local") // the flag is there
	flags.StringVar(&p.on, "on", "", "use the sandboxes of `PLATFORM`: docker, kubernetes[:CONTEXT[/NAMESPACE]],\nor local, which isolates nothing (default: $"+onVariable+" or docker)")
	_ = root.RegisterFlagCompletionFunc("on", cobra.FixedCompletions([]cobra.Completion{"docker", "kubernetes", "local"}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// onVariable is the variable that --on and --local override.
const onVariable = "ACTIOND_ON"

// serverImageVariable is the variable that --server-image overrides.
const serverImageVariable = "ACTIOND_SERVER_IMAGE"

// notOnKubernetes are the flags that Pods cannot honour.
var notOnKubernetes = []string{"pids-limit", "nofile", "read-only", "security-opt", "state-dir", "uid-range", "server"}

// onlyOnKubernetes are the flags that only Pods can honour.
var onlyOnKubernetes = []string{"server-image", "image-pull-secret", "node-selector", "toleration", "userns", "server-volume", "pool-kind"}

// checkPoolKind refuses a kind of pools that is not known, and one of none.
func (p *Platform) checkPoolKind(flags *pflag.FlagSet) error {
	nothing := func(name, value string) bool {
		flag := flags.Lookup(name)
		return flag != nil && flag.Value.String() == value
	}
	switch {
	case flags.Lookup("pool-kind") == nil, p.poolKind == podPool:
		return nil
	case p.poolKind != agentPool:
		return fmt.Errorf("--pool-kind %q: %s and %s are known", p.poolKind, podPool, agentPool)
	case nothing("pool", ""):
		return errors.New("--pool-kind says who keeps a pool: name one with --pool")
	case nothing("warm", "0"):
		return errors.New("--pool-kind says who keeps a pool: give the pool a size with --warm")
	}
	return nil
}

// Choose finds out where the sandboxes are from the flags and the variable, and refuses
// flags of the command that are for other platforms.
func (p *Platform) Choose(command string, flags *pflag.FlagSet) error {
	on, from := p.on, "--on"
	if on == "" && !p.Local {
		on, from = p.Getenv(onVariable), onVariable
	}
	platform, cluster, named := strings.Cut(on, ":")
	onKubernetes := platform == "kubernetes" && (cluster != "" || !named)
	switch {
	case p.Local && (on == "docker" || onKubernetes):
		return fmt.Errorf("--local and --on %s name different platforms: leave one out", on)
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
		return p.checkPoolKind(flags)
	}
	switch on {
	case "", "docker":
		return nil
	case "local":
		p.Local = true
		return nil
	}
	return fmt.Errorf("%s %q: must be docker, kubernetes, kubernetes:CONTEXT, kubernetes:CONTEXT/NAMESPACE or local", from, on)
}
