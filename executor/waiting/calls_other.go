//go:build !amd64

package waiting

// legacyKinds are the system calls that newer architectures have in one form alone.
var legacyKinds map[int64]callKind
