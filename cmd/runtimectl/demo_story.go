package main

import (
	"path"

	"github.com/actiond/actiond/api"
)

// part is a chapter of the demo. What a step needs may have been made by the
// ones before it: after a failure the rest of the part is left out.
type part struct {
	title string
	// missing says why the part cannot be played; "" when it can.
	missing string
	steps   []step
}

// step is one thing that is asked of a sandbox and what must come of it.
type step struct {
	// say is one plain sentence.
	say string
	// needs is a program that the sandbox must have; "" for none.
	needs string
	// action is what is sent, with its limit; nil where upload is set. Where it
	// runs is the player's affair.
	action  api.Action
	seconds float64 // the hard limit; 0 for none
	// upload is sent instead of an action.
	upload *upload
	want   want
}

// upload is an archive that is unpacked in a directory of the sandbox.
type upload struct {
	name, destination string
	archive           []byte
}

// The programs that steps may need, each with a command that succeeds where it
// is there and works.
var tools = []struct{ name, probe string }{
	{"python3", "python3 --version"},
	{"go", "go version"},
}

// story is the demo as data. It plays in dir, an absolute path and the current
// directory of the shell. mod is the source that its second part works on.
func story(dir string, mod module) []part {
	return []part{
		greeter(path.Join(dir, "greeter.py")),
		repair(path.Join(dir, mod.name()), mod),
		patience(),
	}
}

// greeter is the reference's own first example.
func greeter(file string) part {
	return part{title: "A greeter: write a program and run it", steps: []step{
		{
			say:    "Create an empty file.",
			action: api.EditAction{Command: "create", Path: file, FileText: new("")},
			want:   want{holds: []string{"File created successfully"}},
		},
		{
			say: "Write its two lines.",
			action: api.EditAction{
				Command: "insert", Path: file, InsertLine: new("0"),
				NewStr: new("name = input(\"Enter your name: \")\nprint(f\"Hello, {name}!\")"),
			},
			want: want{diff: []string{`+name = input("Enter your name: ")`, `+print(f"Hello, {name}!")`}},
		},
		{
			say:    "Make it executable.",
			action: api.RunAction{Command: "chmod +x greeter.py"},
			want:   want{exactly: new("")},
		},
		{
			say:    "Run it and answer its question.",
			needs:  "python3",
			action: api.RunAction{Command: "echo 'TestUser' | python3 greeter.py"},
			want:   want{exactly: new("Enter your name: Hello, TestUser!")},
		},
	}}
}

// testLimit is the seconds that tests may take on a machine that has compiled
// nothing yet, the standard library included.
const testLimit = 300

// repair breaks and mends a real module, which is uploaded to dir.
func repair(dir string, mod module) part {
	file := path.Join(dir, "bool.go")
	const right, wrong = "*b = boolValue(v)", "*b = boolValue(!v)"
	// Silence is what compiling sounds like: Blocking waits through it.
	test := api.RunAction{Command: "go test -count=1 .", Blocking: true}
	return part{title: "A real Go module, " + mod.String() + ": break it, see it, undo it", missing: mod.missing, steps: []step{
		{
			say:    "Upload its source.",
			upload: &upload{name: "module.zip", destination: dir, archive: mod.archive},
			want:   want{files: []string{"go.mod", "bool.go", "bool_test.go"}},
		},
		{
			say: "Go there, and keep Go off the network. The shell remembers both.",
			// -trimpath is how make builds, so that compiled packages can be shared.
			action: api.RunAction{Command: "cd " + mod.name() + " && export GOPROXY=off GOWORK=off GOFLAGS=-trimpath CGO_ENABLED=0"},
			want:   want{exactly: new("")},
		},
		{
			say:    "View how it reads a boolean flag.",
			action: api.ReadAction{Path: file, ImplSource: "oh_aci", ViewRange: []int{20, 24}, End: -1},
			want:   want{holds: []string{right}},
		},
		{
			say:    "Break it: every flag now means its opposite.",
			action: api.EditAction{Command: "str_replace", Path: file, OldStr: new(right), NewStr: new(wrong)},
			want:   want{diff: []string{"-\t" + right, "+\t" + wrong}},
		},
		{
			say: "Its tests see it. Go compiles first, which may take a while.", needs: "go", action: test, seconds: testLimit,
			want: want{exit: 1, holds: []string{"--- FAIL: TestBoolP"}},
		},
		{
			say:    "Undo.",
			action: api.EditAction{Command: "undo_edit", Path: file},
			want:   want{holds: []string{"undone successfully"}, diff: []string{"-\t" + wrong, "+\t" + right}},
		},
		{
			say: "Its tests pass.", needs: "go", action: test, seconds: testLimit,
			want: want{holds: []string{"ok  ", mod.path}},
		},
	}}
}

// patience shows what a timeout does: it answers, and kills nothing. The limits
// leave room for a slow machine: each is far from the moment it is to miss.
func patience() part {
	return part{title: "A shell that cannot be wedged: a limit answers and does not kill", steps: []step{
		{
			say:    "Start a build of 1.5 seconds and wait 0.3 at most.",
			action: api.RunAction{Command: "echo compiling; sleep 1.5; echo linked"}, seconds: 0.3,
			want: want{running: true, exactly: new("compiling")},
		},
		{
			say:    "Ask for the rest with an empty command.",
			action: api.RunAction{Command: ""},
			want:   want{exactly: new("linked")},
		},
		{
			say:    "Start something that would take ten minutes.",
			action: api.RunAction{Command: "sleep 600"}, seconds: 0.3,
			want: want{running: true, exactly: new("")},
		},
		{
			say:    "Press Ctrl-C.",
			action: api.RunAction{Command: "C-c", IsInput: true},
			want:   want{exit: 130},
		},
	}}
}
