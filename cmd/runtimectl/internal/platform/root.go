package platform

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/actiond/actiond/sandbox"
)

// needRoot are programs that work for root alone.
var needRoot = []string{"apt", "apt-get", "aptitude", "dpkg", "apk", "dnf", "yum", "rpm", "pacman", "zypper", "sudo", "su", "chown", "mount", "useradd", "adduser"}

// HintRoot says after a command that failed how it can be root's, if it is one that has to
// be, and was not.
func (p *Platform) HintRoot(s *sandbox.Sandbox, words []string) {
	name, _, container := strings.Cut(s.User, ":")
	if !container || name == "root" || !slices.Contains(needRoot, path.Base(words[0])) {
		return
	}
	_, _ = fmt.Fprintf(p.Stderr, "note: %s needs root, and commands of this sandbox run as %s; create one with '--user root', or from an image that has what is needed\n",
		path.Base(words[0]), name)
}
