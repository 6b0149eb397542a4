package api

// GlobAction finds files by a pattern of their paths.
type GlobAction struct {
	// Pattern is matched against paths below Path: * and ? stay within a name,
	// ** goes over directories, [a-z] and {a,b} choose.
	Pattern string `json:"pattern"`
	// Path is the directory, absolute or relative to the session's working
	// directory, which is the default.
	Path string `json:"path"`
	// IgnoreCase ignores the case of letters.
	IgnoreCase bool `json:"ignore_case"`
	// NoIgnore includes files that .gitignore and similar files exclude.
	NoIgnore bool `json:"no_ignore"`
	// Dialect "openhands-v1" begins the answer with the number of files. It is not sent.
	Dialect Dialect `json:"-"`
	Common
}

// GrepAction finds lines of files by a regular expression.
type GrepAction struct {
	// Pattern is a regular expression in RE2's syntax, for one line.
	Pattern string `json:"pattern"`
	// Path is a directory or a file, absolute or relative to the session's
	// working directory, which is the default.
	Path string `json:"path"`
	// Include is a pattern of paths, as in GlobAction; one without a slash is
	// for names. Empty means all.
	Include string `json:"include"`
	// Exclude is a regular expression for lines to leave out, "" for none.
	Exclude string `json:"exclude"`
	// IgnoreCase ignores the case of letters.
	IgnoreCase bool `json:"ignore_case"`
	// Fixed makes Pattern a literal string.
	Fixed bool `json:"fixed_strings"`
	// NamesOnly lists the files without the lines.
	NamesOnly bool `json:"names_only"`
	// NoIgnore includes files that .gitignore and similar files exclude.
	NoIgnore bool `json:"no_ignore"`
	// Limit bounds the lines (files, with NamesOnly); 0 means 100.
	Limit int `json:"limit"`
	// FileLimit bounds the lines of one file; 0 means no limit.
	FileLimit int `json:"file_limit"`
	// Before and After are the numbers of lines to show around a match. If both are
	// nil, a few matches are shown with context.
	Before *int `json:"before,omitzero"`
	After  *int `json:"after,omitzero"`
	// Dialect is that of a GlobAction, for names alone. It is not sent.
	Dialect Dialect `json:"-"`
	Common
}

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

// ListAction lists a directory.
type ListAction struct {
	// Path is absolute or relative to the session's working directory, which is
	// the default.
	Path string `json:"path"`
	// Ignore are patterns of names to leave out.
	Ignore []string `json:"ignore"`
	// NoIgnore includes files that .gitignore and similar files exclude.
	NoIgnore bool `json:"no_ignore"`
	// Recursive also lists the directories in the directory.
	Recursive bool `json:"recursive,omitzero"`
	Common
}

// SearchObservation is the result of a search.
type SearchObservation struct {
	// Content is for the agent to read.
	Content string `json:"-"`
	// Action is the kind of the action.
	Action string `json:"action"`
	// Path is the absolute path that was searched.
	Path string `json:"path"`
	// Count is the number of files, lines or entries in the content.
	Count int `json:"count"`
	// Truncated is true if there are more, or may be.
	Truncated bool `json:"truncated"`
	// Files are the absolute paths of a glob, and of a grep for names alone; nil otherwise.
	Files []string `json:"files,omitzero"`
}
