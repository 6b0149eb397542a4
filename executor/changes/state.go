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

const (
	// maxSample and maxPathBytes bound the paths of one kind that are named, in number and in bytes together.
	maxSample    = 200
	maxPathBytes = 64 << 10
)

// sample has some of the paths of one kind. A path may have megabytes, so that none is made once one has found no room.
type sample struct {
	paths []string
	bytes int // of all paths, also of the one that found no room
}

// pathed is a file or directory that knows its path.
type pathed interface{ path() string }

// add adds an entry of a directory, or the directory itself for "".
func (s *sample) add(at pathed, name string) {
	if len(s.paths) < maxSample && s.bytes <= maxPathBytes {
		s.addPath(join(at.path(), name))
	}
}

func (s *sample) addPath(path string) {
	if s.bytes += len(path); len(s.paths) < maxSample && s.bytes <= maxPathBytes {
		s.paths = append(s.paths, path)
	}
}

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
