package executor

// What tests need to see from inside.
const MaxFileWork = maxFileWork

// NewFileWork returns a semaphore for file work.
var NewFileWork = newFileWork

// OnFiles is file work with a number for a result.
var OnFiles = onFiles[int]

// OwnedByRoot returns a directory that may be on root's PATH, without links, or "".
var OwnedByRoot = ownedByRoot
