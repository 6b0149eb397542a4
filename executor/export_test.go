package executor

// What tests need to see from inside.
type Places = places

// OnFiles is file work with a number for a result.
var OnFiles = onFiles[int]
