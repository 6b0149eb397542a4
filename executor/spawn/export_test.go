package spawn

// StartWithin is Start with a limit of the caller's.
var StartWithin = start
