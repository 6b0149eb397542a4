package identity

// FindIn is Find with another directory in place of /etc.
var FindIn = findIn
