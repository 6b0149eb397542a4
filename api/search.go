package api

// GlobAction finds files by a pattern of their paths.
type GlobAction struct {
	Common
	// Pattern is matched against paths below Path: * and ? stay within a name,
	// ** goes over directories, [a-z] and {a,b} choose.
	Pattern string
	// Path is the directory, absolute or relative to the session's working
	// directory, which it is when empty.
	Path string
	// IgnoreCase makes letters of both cases alike.
	IgnoreCase bool
	// NoIgnore finds what .gitignore and its like leave out, too.
	NoIgnore bool
}

// Kind returns "glob".
func (GlobAction) Kind() string { return "glob" }
func (GlobAction) action()      {}

func decodeGlob(f *fields) GlobAction {
	return GlobAction{
		Common:     decodeCommon(f),
		Pattern:    f.needText("pattern"),
		Path:       f.text("path", ""),
		IgnoreCase: f.flag("ignore_case", false),
		NoIgnore:   f.flag("no_ignore", false),
	}
}

func (a GlobAction) encodeArgs(w *writer) {
	w.text("pattern", a.Pattern)
	w.text("path", a.Path)
	w.flag("ignore_case", a.IgnoreCase)
	w.flag("no_ignore", a.NoIgnore)
	a.encodeCommon(w)
}

// GrepAction finds lines of files by a regular expression.
type GrepAction struct {
	Common
	// Pattern is a regular expression in RE2's syntax, for one line.
	Pattern string
	// Path is a directory or a file, absolute or relative to the session's
	// working directory, which it is when empty.
	Path string
	// Include is a pattern of paths, as in GlobAction; one without a slash is
	// for names. Exclude is a regular expression for lines that do not count.
	// Both may be empty.
	Include, Exclude string
	// IgnoreCase makes letters of both cases alike; Fixed takes the pattern as
	// it is; NamesOnly wants the files alone; NoIgnore searches what .gitignore
	// and its like leave out, too.
	IgnoreCase, Fixed, NamesOnly, NoIgnore bool
	// Limit is how many lines (files, with NamesOnly) are wanted, and FileLimit
	// how many of one file; 0 means 100, and no limit.
	Limit, FileLimit int
	// Before and After are how many lines around a match are wanted; where both
	// are nil, few matches come with lines around them.
	Before, After *int
}

// Kind returns "grep".
func (GrepAction) Kind() string { return "grep" }
func (GrepAction) action()      {}

func decodeGrep(f *fields) GrepAction {
	return GrepAction{
		Common:     decodeCommon(f),
		Pattern:    f.needText("pattern"),
		Path:       f.text("path", ""),
		Include:    f.text("include", ""),
		Exclude:    f.text("exclude", ""),
		IgnoreCase: f.flag("ignore_case", false),
		Fixed:      f.flag("fixed_strings", false),
		NamesOnly:  f.flag("names_only", false),
		NoIgnore:   f.flag("no_ignore", false),
		Limit:      f.count("limit"),
		FileLimit:  f.count("file_limit"),
		Before:     f.countOrNil("before"),
		After:      f.countOrNil("after"),
	}
}

func (a GrepAction) encodeArgs(w *writer) {
	w.text("pattern", a.Pattern)
	w.text("path", a.Path)
	w.text("include", a.Include)
	w.text("exclude", a.Exclude)
	w.flag("ignore_case", a.IgnoreCase)
	w.flag("fixed_strings", a.Fixed)
	w.flag("names_only", a.NamesOnly)
	w.flag("no_ignore", a.NoIgnore)
	w.integer("limit", a.Limit)
	w.integer("file_limit", a.FileLimit)
	w.integerIfAny("before", a.Before)
	w.integerIfAny("after", a.After)
	a.encodeCommon(w)
}

// ListAction lists what is in a directory.
type ListAction struct {
	Common
	// Path is absolute or relative to the session's working directory, which it
	// is when empty.
	Path string
	// Ignore are patterns of names to leave out.
	Ignore []string
	// NoIgnore lists what .gitignore and its like leave out, too.
	NoIgnore bool
}

// Kind returns "list_directory".
func (ListAction) Kind() string { return "list_directory" }
func (ListAction) action()      {}

func decodeList(f *fields) ListAction {
	return ListAction{
		Common:   decodeCommon(f),
		Path:     f.text("path", ""),
		Ignore:   f.texts("ignore"),
		NoIgnore: f.flag("no_ignore", false),
	}
}

func (a ListAction) encodeArgs(w *writer) {
	w.text("path", a.Path)
	w.texts("ignore", a.Ignore)
	w.flag("no_ignore", a.NoIgnore)
	a.encodeCommon(w)
}

// count takes a number that is not negative, 0 when absent.
func (f *fields) count(name string) int {
	if n := f.countOrNil(name); n != nil {
		return *n
	}
	return 0
}

func (f *fields) countOrNil(name string) *int {
	v := f.values[name]
	n := f.integerOrNil(name)
	if n != nil && *n < 0 {
		f.complain(name, v, "an integer that is not negative")
	}
	return n
}

// SearchObservation is what a search found.
type SearchObservation struct {
	// Content is for the agent to read.
	Content string
	// Action is the kind of the action, Path the absolute path that was
	// searched.
	Action, Path string
	// Count is how many files, lines or entries there are in the content.
	Count int
	// Truncated says that there are more, or may be.
	Truncated bool
}

// Kind returns "search".
func (SearchObservation) Kind() string { return "search" }
func (SearchObservation) observation() {}

func (o SearchObservation) encode(w *writer) {
	w.head("I searched "+o.Path+".", o.Kind(), o.Content)
	w.text("action", o.Action)
	w.text("path", o.Path)
	w.integer("count", o.Count)
	w.flag("truncated", o.Truncated)
	w.close()
	w.close()
}

func decodeSearchObservation(content string, f *fields) Observation {
	return SearchObservation{
		Content: content, Action: f.text("action", ""), Path: f.text("path", ""),
		Count: f.integer("count", 0), Truncated: f.flag("truncated", false),
	}
}
