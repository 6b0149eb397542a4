// Package changes says which files below a directory changed, and how, between two moments.
//
// A [Tracker] keeps the tree of names and attributes as it is, and makes a [State] of it whenever it is asked.
// States share what did not change: one costs the directories that were listed and those above them. [Compare]
// returns the net changes between two states of a tracker.
package changes
