//go:build figures

package integration_test

import (
	"fmt"
	"reflect"
	"time"
)

const (
	// settleTime is longer than the limits that the last command was given: the
	// runtime wakes once for each, when it would have been over.
	settleTime = 35 * time.Second
	idleTime   = 10 * time.Second
	commands   = 10_000
	warmUp     = 1_000
)

// idle looks at a server that has run one command and is left alone.
func (f *figures) idle() {
	p := f.launch("tcp")
	if _, err := p.run(command("true", "")); err != nil {
		f.Fatal(err)
	}
	p.hangUp()
	f.pause(time.Second)
	shells := descendants(p.pid())
	if len(shells) != 1 {
		f.Fatalf("the server has %d processes, want its one shell", len(shells))
	}
	fresh, before := memoryOf(p.pid()), wakeUps(p.pid(), shells[0])
	f.pause(settleTime)
	settled := wakeUps(p.pid(), shells[0])
	m, shell := memoryOf(p.pid()), memoryOf(shells[0])
	f.table.add(row{
		name: "idle RSS with a shell", ours: mebibytes(m.rss), target: "≤ 15 MiB", bare: mebibytes(shell.rss) + " (the shell itself)",
		reference: "reference 87 MiB", met: new(m.rss <= 15<<10),
	})
	f.table.note("Idle memory: the server's RSS is %s, of which %s is its own and the rest pages of its binary (PSS %s); a second after a command it was %s. "+
		"Its bash adds an RSS of %s, of which %s is its own (PSS %s).",
		mebibytes(m.rss), mebibytes(m.anonymous), mebibytes(m.pss), mebibytes(fresh.rss), mebibytes(shell.rss), mebibytes(shell.anonymous), mebibytes(shell.pss))
	f.table.note("Wake-ups: %d in the %v after the command, in which its limits run out; then come the %v that count.",
		settled-before, settleTime, idleTime)
	before = settled
	f.pause(idleTime)
	woken := wakeUps(p.pid(), shells[0]) - before
	f.table.add(row{
		name: "wake-ups per second when idle", ours: fmt.Sprintf("%.1f", float64(woken)/idleTime.Seconds()), target: "0",
		met: new(woken == 0),
	})
	p.stop(f)
}

// endurance runs many commands and looks for what they left. This is asserted:
// it does not depend on the machine.
func (f *figures) endurance() {
	state := f.scratch()
	p := f.launch("tcp", "--state-dir", state)
	mix := [][]byte{
		command("true", ""), command("echo $((n+=1))", ""), command("(exit 0)", ""), command("cd . && pwd", ""),
		command("/bin/true", ""), command("echo one | cat", ""), command("export N=$n", ""), command("true # and a word", ""),
	}
	each := func(n int) sample {
		s := make(sample, n)
		for i := range s {
			took, err := p.run(mix[i%len(mix)])
			if err != nil {
				f.Fatalf("command %d: %v", i, err)
			}
			s[i] = took
		}
		return s
	}
	each(warmUp)
	f.pause(time.Second)
	before, rss := f.belongings(p, state), memoryOf(p.pid())
	all := each(commands)
	f.settle(func() bool { return len(descendants(p.pid())) <= before.processes })
	after := f.belongings(p, state)
	if grown := after.threads - before.threads; grown > 2 { // the runtime keeps the threads it once needed
		f.Errorf("%d commands: %d threads before, %d after", commands, before.threads, after.threads)
	}
	same := before
	same.threads = after.threads
	if !reflect.DeepEqual(after, same) {
		f.Errorf("%d commands left something:\ngot  %+v\nwant %+v", commands, after, before)
	}
	f.table.add(row{
		name: "10,000 commands in a row: what is left", target: "nothing",
		ours: fmt.Sprintf("%d descriptors, %d processes, %d files, %d goroutines", len(after.descriptors)-len(before.descriptors),
			after.processes-before.processes, len(after.files)-len(before.files), after.goroutines-before.goroutines),
		met: new(reflect.DeepEqual(after, same)),
	})
	first, last := all[:len(all)/10], all[len(all)-len(all)/10:]
	peak := memoryOf(p.pid()).peak
	f.pause(settleTime)
	rest := memoryOf(p.pid())
	f.table.add(row{
		name: fmt.Sprintf("idle RSS %v after 10,000 commands", settleTime), ours: mebibytes(rest.rss), target: "≤ 15 MiB",
		met: new(rest.rss <= 15<<10),
	})
	f.table.note("10,000 commands, three in eight with processes: p50 %s and p99 %s in the first tenth, %s and %s in the last; %d threads before, %d after; RSS %s before, at most %s.",
		ms(first.median()), ms(first.quantile(0.99)), ms(last.median()), ms(last.quantile(0.99)), before.threads, after.threads,
		mebibytes(rss.rss), mebibytes(peak))
	p.stop(f)
}
