// Package files brings trees of files into a sandbox and out of it: uploads, zip and tar archives, downloads. The agent may have
// made the trees, and the archives may come from it: everything is opened with the rights of the sandbox's user, no
// link leads out of the named directory, and sizes are bounded before anything is held or written.
//
// Errors are an [*github.com/actiond/actiond/api.Error] where the caller or the state of the sandbox is to blame.
package files
