package api

// BrowseAction opens a page.
type BrowseAction struct {
	// URL is the page; one that does not begin with "http" is a local file.
	URL string `json:"url"`
	Common
	// ReturnAXTree asks for the accessibility tree in the observation.
	ReturnAXTree bool `json:"return_axtree"`
	// Reference answers like the reference server, which has no browser, if no server sends the page.
	Reference bool `json:"-"`
}

// BrowseInteractiveAction runs a small program of browser calls.
type BrowseInteractiveAction struct {
	// BrowserActions are calls in Python syntax, one a line, such as
	// `click("12")`.
	BrowserActions string `json:"browser_actions"`
	Common
	// SendMessageToUser is carried and not used.
	SendMessageToUser string `json:"browsergym_send_msg_to_user"`
	// ReturnAXTree asks for the accessibility tree in the observation.
	ReturnAXTree bool `json:"return_axtree"`
}

// BrowseObservation is a page after a browsing action. A failed step is not an
// ErrorObservation: Error is set and LastBrowserActionError says why.
type BrowseObservation struct {
	// Content is the page in words: Markdown, or the accessibility tree.
	Content string `json:"-"`
	URL     string `json:"url"`
	// TriggerByAction is "browse" or "browse_interactive".
	TriggerByAction string `json:"trigger_by_action"`
	// Screenshot and SetOfMarks are data URLs, or "".
	Screenshot string `json:"screenshot"`
	// ScreenshotPath is the file the screenshot was saved to, nil when it was not.
	ScreenshotPath *string `json:"screenshot_path"`
	SetOfMarks     string  `json:"set_of_marks"`
	Error          bool    `json:"error"`
	// GoalImageURLs and OpenPagesURLs travel as lists, empty ones when nil.
	GoalImageURLs []string `json:"goal_image_urls"`
	OpenPagesURLs []string `json:"open_pages_urls"`
	// ActivePageIndex counts from 0; -1 when absent on the wire.
	ActivePageIndex int `json:"active_page_index"`
	// The objects are free-form and travel as {} when nil. Decoded numbers in
	// them are json.Number.
	DOMObject              map[string]any `json:"dom_object"`
	AXTreeObject           map[string]any `json:"axtree_object"`
	ExtraElementProperties map[string]any `json:"extra_element_properties"`
	// LastBrowserAction is the program that ran.
	LastBrowserAction      string `json:"last_browser_action"`
	LastBrowserActionError string `json:"last_browser_action_error"`
	FocusedElementBID      string `json:"focused_element_bid"`
	FilterVisibleOnly      bool   `json:"filter_visible_only"`
	// Network has the denials of the network policy; nil without any.
	Network *Network `json:"-"`
}

func (o BrowseObservation) filled() Observation {
	o.GoalImageURLs, o.OpenPagesURLs = orEmpty(o.GoalImageURLs), orEmpty(o.OpenPagesURLs)
	return o
}

// DownloadObservation replaces a BrowseObservation when the step fetched a
// file instead of showing a page.
type DownloadObservation struct {
	Content string `json:"-"`
	// FilePath is where the file is.
	FilePath string `json:"file_path"`
	// Network has the denials of the network policy; nil without any.
	Network *Network `json:"-"`
}
