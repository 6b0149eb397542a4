package platform

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/actiond/actiond/sandbox"
)

// refusedRights matches the messages of programs that failed for want of root's rights. A
// remote machine that denies permission says which methods it offers, in parentheses.
var refusedRights = regexp.MustCompile(`(?im)are you root|(must|has to|needs? to) be (run as |run with |run by )?(the )?(root|superuser)|` +
	`(needs|requires?) (root|superuser)|superuser privilege|only root|no new privileges|operation not permitted|permission denied([^ ]| [^(]|$)`)

// HintRoot says after a command that failed how it can be root's, if it wrote that it was
// refused something and was not root's.
func (p *Platform) HintRoot(s *sandbox.Sandbox, said string) {
	name, _, container := strings.Cut(s.User, ":")
	if !container || name == "root" || !refusedRights.MatchString(said) {
		return
	}
	way := "create a sandbox with '--allow-root' and use 'exec --user root', or take an image that has what is needed"
	if s.AllowRoot {
		way = fmt.Sprintf("use 'runtimectl exec --user root %s -- ...'", s.Name)
	}
	_, _ = fmt.Fprintf(p.Stderr, "note: the command ran as %s; if it needs root, %s\n", name, way)
}
