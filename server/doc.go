// Package server is where HTTP ends: it carries actions to an executor and
// observations back, moves files in and out of the sandbox, and says how the
// process is doing. It promises that every request is bounded in size and in
// time, that a key, where one is set, is asked for before anything else, and
// that bad input gets a JSON answer with a "detail" and changes nothing.
package server
