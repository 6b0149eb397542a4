// Package journal keeps actions by their ids over restarts of the server: their beginnings, their output
// and their ends.
//
// An action is reserved, then running, then done, cancelled or refused; it is unknown
// where the process died while it ran. Later it is forgotten: its id is still
// refused, and its text is gone.
//
// The journal is a directory of append-only files of records with checksums. A record
// is one write and is there after the death of the process; with [Config.Sync] also
// after a loss of power. [docs/decisions/028] says why it is no database.
//
// [docs/decisions/028]: https://github.com/actiond/actiond/blob/main/docs/decisions/028-journal.md
package journal
