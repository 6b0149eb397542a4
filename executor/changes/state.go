package changes

// Why says why changes may be missing or wrong.
type Why string

// The reasons, the weightiest first.
const (
	WhyRoot       Why = "root"        // another directory has the path of the root
	WhyFUSE       Why = "fuse"        // the file system is FUSE, and large
	WhyNetwork    Why = "network"     // others change the file system, and it is large
	WhyNamesLimit Why = "names limit" // there are more names than [Config.MaxNames]
	WhyWatchLimit Why = "watch limit" // there are more directories than watches
	WhyMapped     Why = "mapped"      // which files a process has mapped is unknown
	WhyUnsure     Why = "unsure"      // files are unreadable, or change while they are read
)

var whys = []Why{WhyRoot, WhyFUSE, WhyNetwork, WhyNamesLimit, WhyWatchLimit, WhyMapped, WhyUnsure}

// maxUnsure bounds the names of what could not be decided.
const maxUnsure = 200

// State is the tree at one moment. It never changes, and shares with other states what is the same in both.
type State struct {
	root   *node
	why    Why
	unsure []string
	names  int
	// unwatched is the number of files that may have changed by names outside of the tree.
	unwatched int
}

// Exact reports whether the state is known to be that of the tree.
func (s *State) Exact() bool { return s.why == "" && len(s.unsure) == 0 }

// Names is the number of names below the root.
func (s *State) Names() int { return s.names }
