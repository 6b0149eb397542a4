package api

// GlobAction finds files by a pattern of their paths.
type GlobAction struct {
	// Pattern is matched against paths below Path: * and ? stay within a name,
	// ** goes over directories, [a-z] and {a,b} choose.
	Pattern string `json:"pattern"`
	// Path is the directory, absolute or relative to the session's working
	// directory, which it is when empty.
	Path string `json:"path"`
	// IgnoreCase makes letters of both cases alike.
	IgnoreCase bool `json:"ignore_case"`
	// NoIgnore finds what .gitignore and its like leave out, too.
	NoIgnore bool `json:"no_ignore"`
	Common
}

// Kind returns "glob".
func (GlobAction) Kind() string { return "glob" }
func (GlobAction) action()      {}

// GrepAction finds lines of files by a regular expression.
type GrepAction struct {
	// Pattern is a regular expression in RE2's syntax, for one line.
	Pattern string `json:"pattern"`
	// Path is a directory or a file, absolute or relative to the session's
	// working directory, which it is when empty.
	Path string `json:"path"`
	// Include is a pattern of paths, as in GlobAction; one without a slash is
	// for names. Empty means all.
	Include string `json:"include"`
	// Exclude is a regular expression for lines that do not count, "" for none.
	Exclude string `json:"exclude"`
	// IgnoreCase makes letters of both cases alike.
	IgnoreCase bool `json:"ignore_case"`
	// Fixed takes the pattern as it is.
	Fixed bool `json:"fixed_strings"`
	// NamesOnly wants the files alone.
	NamesOnly bool `json:"names_only"`
	// NoIgnore searches what .gitignore and its like leave out, too.
	NoIgnore bool `json:"no_ignore"`
	// Limit is how many lines (files, with NamesOnly) are wanted; 0 means 100.
	Limit int `json:"limit"`
	// FileLimit is how many lines of one file are wanted; 0 means no limit.
	FileLimit int `json:"file_limit"`
	// Before and After are how many lines around a match are wanted; where both
	// are nil, few matches come with lines around them.
	Before *int `json:"before,omitzero"`
	After  *int `json:"after,omitzero"`
	Common
}

// Kind returns "grep".
func (GrepAction) Kind() string { return "grep" }
func (GrepAction) action()      {}

// settle refuses negative numbers.
func (a GrepAction) settle(d *decoding) (Action, error) {
	for _, count := range []struct {
		name string
		n    *int
	}{{"limit", &a.Limit}, {"file_limit", &a.FileLimit}, {"before", a.Before}, {"after", a.After}} {
		if count.n != nil && *count.n < 0 {
			d.refuse(count.name, "an integer that is not negative")
		}
	}
	return a, d.check()
}

// ListAction lists what is in a directory.
type ListAction struct {
	// Path is absolute or relative to the session's working directory, which it
	// is when empty.
	Path string `json:"path"`
	// Ignore are patterns of names to leave out.
	Ignore []string `json:"ignore"`
	// NoIgnore lists what .gitignore and its like leave out, too.
	NoIgnore bool `json:"no_ignore"`
	Common
}

// Kind returns "list_directory".
func (ListAction) Kind() string { return "list_directory" }
func (ListAction) action()      {}

// SearchObservation is what a search found.
type SearchObservation struct {
	// Content is for the agent to read.
	Content string `json:"-"`
	// Action is the kind of the action.
	Action string `json:"action"`
	// Path is the absolute path that was searched.
	Path string `json:"path"`
	// Count is how many files, lines or entries there are in the content.
	Count int `json:"count"`
	// Truncated says that there are more, or may be.
	Truncated bool `json:"truncated"`
}

// Kind returns "search".
func (SearchObservation) Kind() string { return "search" }

func (o SearchObservation) wire() wire {
	return wire{Message: "I searched " + o.Path + ".", Content: o.Content, Extras: extrasOf(o)}
}
