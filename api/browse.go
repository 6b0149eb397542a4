package api

// BrowseAction opens a page.
type BrowseAction struct {
	Common
	// URL is the page; one that does not begin with "http" is a local file.
	URL string
	// ReturnAXTree asks for the accessibility tree in the observation.
	ReturnAXTree bool
}

// Kind returns "browse".
func (BrowseAction) Kind() string { return "browse" }
func (BrowseAction) action()      {}

func decodeBrowse(f *fields) BrowseAction {
	return BrowseAction{
		Common:       decodeCommon(f),
		URL:          f.needText("url"),
		ReturnAXTree: f.flag("return_axtree", false),
	}
}

func (a BrowseAction) encodeArgs(w *writer) {
	w.text("url", a.URL)
	a.encodeCommon(w)
	w.flag("return_axtree", a.ReturnAXTree)
}

// BrowseInteractiveAction runs a small program of browser calls.
type BrowseInteractiveAction struct {
	Common
	// BrowserActions are calls in Python syntax, one a line, such as
	// `click("12")`.
	BrowserActions string
	// SendMessageToUser is carried and not used.
	SendMessageToUser string
	// ReturnAXTree asks for the accessibility tree in the observation.
	ReturnAXTree bool
}

// Kind returns "browse_interactive".
func (BrowseInteractiveAction) Kind() string { return "browse_interactive" }
func (BrowseInteractiveAction) action()      {}

func decodeBrowseInteractive(f *fields) BrowseInteractiveAction {
	return BrowseInteractiveAction{
		Common:            decodeCommon(f),
		BrowserActions:    f.needText("browser_actions"),
		SendMessageToUser: f.text("browsergym_send_msg_to_user", ""),
		ReturnAXTree:      f.flag("return_axtree", false),
	}
}

func (a BrowseInteractiveAction) encodeArgs(w *writer) {
	w.text("browser_actions", a.BrowserActions)
	a.encodeCommon(w)
	w.text("browsergym_send_msg_to_user", a.SendMessageToUser)
	w.flag("return_axtree", a.ReturnAXTree)
}

// BrowseObservation is a page after a browsing action. A failed step is not an
// ErrorObservation: Error is set and LastBrowserActionError says why.
type BrowseObservation struct {
	// Content is the page in words: Markdown, or the accessibility tree.
	Content string
	URL     string
	// TriggerByAction is "browse" or "browse_interactive".
	TriggerByAction string
	// Screenshot and SetOfMarks are data URLs, or "".
	Screenshot string
	// ScreenshotPath is the file the screenshot was saved to, nil when it was not.
	ScreenshotPath *string
	SetOfMarks     string
	Error          bool
	// GoalImageURLs and OpenPagesURLs travel as lists, empty ones when nil.
	GoalImageURLs []string
	OpenPagesURLs []string
	// ActivePageIndex counts from 0; -1 when absent on the wire.
	ActivePageIndex int
	// The objects are free-form and travel as {} when nil. Decoded numbers in
	// them are json.Number.
	DOMObject              map[string]any
	AXTreeObject           map[string]any
	ExtraElementProperties map[string]any
	// LastBrowserAction is the program that ran.
	LastBrowserAction      string
	LastBrowserActionError string
	FocusedElementBID      string
	FilterVisibleOnly      bool
}

// Kind returns "browse".
func (BrowseObservation) Kind() string { return "browse" }
func (BrowseObservation) observation() {}

func (o BrowseObservation) encode(w *writer) {
	w.grow(len(o.Content) + len(o.Screenshot) + len(o.SetOfMarks) + len(o.Content)/16 + 2048)
	w.head("Visited "+o.URL, o.Kind(), o.Content)
	w.text("url", o.URL)
	w.text("trigger_by_action", o.TriggerByAction)
	w.text("screenshot", o.Screenshot)
	w.textOrNull("screenshot_path", o.ScreenshotPath)
	w.text("set_of_marks", o.SetOfMarks)
	w.flag("error", o.Error)
	w.texts("goal_image_urls", orEmpty(o.GoalImageURLs))
	w.texts("open_pages_urls", orEmpty(o.OpenPagesURLs))
	w.integer("active_page_index", o.ActivePageIndex)
	w.object("dom_object", o.DOMObject)
	w.object("axtree_object", o.AXTreeObject)
	w.object("extra_element_properties", o.ExtraElementProperties)
	w.text("last_browser_action", o.LastBrowserAction)
	w.text("last_browser_action_error", o.LastBrowserActionError)
	w.text("focused_element_bid", o.FocusedElementBID)
	w.flag("filter_visible_only", o.FilterVisibleOnly)
	w.close()
	w.close()
}

func orEmpty(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

func decodeBrowseObservation(content string, f *fields) Observation {
	return BrowseObservation{
		Content:                content,
		URL:                    f.needText("url"),
		TriggerByAction:        f.needText("trigger_by_action"),
		Screenshot:             f.text("screenshot", ""),
		ScreenshotPath:         f.textOrNil("screenshot_path"),
		SetOfMarks:             f.text("set_of_marks", ""),
		Error:                  f.flag("error", false),
		GoalImageURLs:          orEmpty(f.texts("goal_image_urls")),
		OpenPagesURLs:          orEmpty(f.texts("open_pages_urls")),
		ActivePageIndex:        f.integer("active_page_index", -1),
		DOMObject:              f.object("dom_object"),
		AXTreeObject:           f.object("axtree_object"),
		ExtraElementProperties: f.object("extra_element_properties"),
		LastBrowserAction:      f.text("last_browser_action", ""),
		LastBrowserActionError: f.text("last_browser_action_error", ""),
		FocusedElementBID:      f.text("focused_element_bid", ""),
		FilterVisibleOnly:      f.flag("filter_visible_only", false),
	}
}

// DownloadObservation replaces a BrowseObservation when the step fetched a
// file instead of showing a page.
type DownloadObservation struct {
	Content string
	// FilePath is where the file is.
	FilePath string
}

// Kind returns "download".
func (DownloadObservation) Kind() string { return "download" }
func (DownloadObservation) observation() {}

func (o DownloadObservation) encode(w *writer) {
	w.head("Downloaded the file at location: "+o.FilePath, o.Kind(), o.Content)
	w.text("file_path", o.FilePath)
	w.close()
	w.close()
}

func decodeDownloadObservation(content string, f *fields) Observation {
	return DownloadObservation{Content: content, FilePath: f.needText("file_path")}
}
