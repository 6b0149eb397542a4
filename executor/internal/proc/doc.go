// Package proc starts the processes of engines, kills them with all their
// descendants, and keeps the end of their output.
//
// A start cannot block the server. While Go starts a process, its thread is in the
// kernel until the child has executed the program, and meanwhile the runtime
// cannot stop the world to collect memory. Three things can make that wait
// endless: a child with the rights of another user is stopped by that user's
// processes (kill -STOP -1 in a loop); a process has a lease on the program's file
// (fcntl(2), 45 seconds); the file system does not answer. So [Start] executes
// an intermediate program with its own rights, which takes on the user's rights, changes the
// directory and executes the program: it can block only itself. It is a stub in memory
// (stub.go) or, where no stub can be had, a copy of this program, whose half of the
// work is in package reexec.
package proc
