package platform

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// AddOn gives root, and every command below it, the flag that chooses the platform.
func (p *Platform) AddOn(root *cobra.Command) {
	root.PersistentFlags().StringVar(&p.on, "on", "", "use the sandboxes of `PLATFORM`: docker, or local, which isolates nothing (default: $"+onVariable+" or docker)")
	_ = root.RegisterFlagCompletionFunc("on", cobra.FixedCompletions([]cobra.Completion{"docker", "local"}, cobra.ShellCompDirectiveNoFileComp)) // the flag is there
}

// onVariable is the variable that --on and --local override.
const onVariable = "ACTIOND_ON"

// Choose finds out where the sandboxes are from the flags and the variable.
func (p *Platform) Choose() error {
	on, from := p.on, "--on"
	if on == "" && !p.Local {
		on, from = p.Getenv(onVariable), onVariable
	}
	platform, _, _ := strings.Cut(on, ":")
	switch {
	case on == "docker" && p.Local:
		return errors.New("--local and --on docker name different platforms: leave one out")
	case on == "", on == "docker":
		return nil
	case on == "local":
		p.Local = true
		return nil
	case platform == "kubernetes":
		return fmt.Errorf("%s %q: sandboxes on Kubernetes come later; use docker or local", from, on)
	}
	return fmt.Errorf("%s %q: must be docker or local", from, on)
}
