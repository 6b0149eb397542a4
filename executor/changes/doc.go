// Package changes says which files below a directory changed, and how, between two moments.
//
// A [Tracker] keeps the tree of names and attributes as it is, and makes a [State] of it whenever it is asked. States
// share what did not change: one costs the directories that were listed and those above them. [Compare] returns the net
// changes between two states of a tracker.
//
// Each directory has an inotify watch that the kernel forgets after its first event, so that nothing of this package runs
// while a command does. The events say which directories to list again, by descriptor; what changed in them is known
// from inode, times and attributes, and where these cannot tell, from a hash of the content. All is read with the rights of
// the user, no link is followed, and no mount below the root is entered.
//
// With a store, [Tracker.KeepContents] keeps the contents and extended attributes of files, read with the user's rights, and
// never a mixture of two contents; [Tracker.Diff] shows what changed in texts. [Tracker.Restore] makes the tree what it was in
// a state, or says by name what it could not; [Tracker.Revert] takes back one change of several. [States] are states by id,
// also those of an earlier process.
//
// # Promises
//
// Nothing changes unseen, and nothing is said that did not change, unless [Changes].Exact is false; then Why says why.
// Reasons are a file system that others change or whose attributes cannot be believed (FUSE, network file systems) with
// more than 20,000 names, more names than the limit, more directories than watches, a root that was replaced, mappings of
// processes that cannot be looked into, and files and directories that cannot be read or change while they are. What a
// comparison needs to know of a file's content must have been read: files above [Config].MaxFile never are, others by
// [Tracker.ReadContents].
//
// # No promises
//
//   - A file that is changed through a hard link which is made and removed within one step is found by
//     [Tracker.Verify] alone.
//   - Files that a process maps and changes between two steps are known if the process is given to the second step, or ends
//     before it. Of 200,000 mappings in all, the others are not looked at; then Why says so.
//   - Changes during a step are in its state or in the next one. A directory that changes again and again is unsure.
//   - Times are not compared in order but with the clock of this machine: an agent that can set it can hide a change.
//   - What is mounted below the root is named and not entered. Nothing outside of the root is known.
//
// A step takes memory and time in proportion to the directories that changed; of hostile trees the limits of [Config], a
// depth of 16,384 directories, 256 MiB to be read and 8 listings of a directory bound it.
package changes
